"""The address of a table in an object store, `scheme://bucket/key`, which is taken as it stands.

A key is no URL: `%20`, `+` and `#` in it are these signs, as they are to the stores' own tools and
to Hadoop. What a store, or a tool beside us, would understand in another way than it is written is
refused, so that one address is one place and no two of them meet:

- an empty part, as in `a//b`, and `.` and `..`; one slash at the end is no part of the key,
- control characters,
- `?`, which would begin a query, and passwords, which `open_storage` looks for,
- a user, a port, or anything else but a name where the bucket is,
- on Azure also a backslash, which it takes for a slash, and a part that ends with a dot.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self
from urllib.parse import quote

from headwater.config.secrets import HIDDEN
from headwater.errors import InvalidInputError

AZURE_SCHEMES = frozenset({"az", "abfs", "abfss"})

# Buckets have fewer signs than this; those of Azure's own containers, such as $web, are among them.
_BUCKET = re.compile(r"[A-Za-z0-9$._-]+")
_HOST_OF_ACCOUNT = re.compile(r"([A-Za-z0-9-]+)\.(?:dfs|blob)\.(?:core\.windows\.net|fabric\..*)")
_CONTROL_CHARACTER = re.compile(r"[\x00-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class StoreAddress:
    """A bucket or container, and the key that everything of a table begins with."""

    scheme: str
    bucket: str
    host: str
    """Where the account of an Azure container is; empty if the address does not say so."""
    key: str
    """Empty for the bucket as a whole."""

    @classmethod
    def parse(cls, uri: str) -> Self:
        """Read an address.

        Raises:
            InvalidInputError: it is not one place, to everybody that may read it.
        """
        scheme, _, rest = uri.partition("://")
        scheme = scheme.lower()
        authority, _, key = rest.partition("/")
        bucket, at, host = authority.partition("@")
        key = key.removesuffix("/")
        is_azure = scheme in AZURE_SCHEMES
        if problem := (
            _problem_of_bucket(bucket, host if at else None, is_azure=is_azure)
            or _problem_of_key(key, is_azure=is_azure)
        ):
            shown, is_query, _ = uri.partition("?")  # What follows may be a key to the store.
            shown += f"?{HIDDEN}" if is_query else ""
            raise InvalidInputError(f"{shown!r} is no address of a table: {problem}")
        return cls(scheme, bucket, host, key)

    @property
    def uri(self) -> str:
        """How people call it."""
        authority = f"{self.bucket}@{self.host}" if self.host else self.bucket
        return f"{self.scheme}://{authority}" + (f"/{self.key}" if self.key else "")

    @property
    def url(self) -> str:
        """The same as a URL, in which odd characters are escaped."""
        authority = f"{self.bucket}@{self.host}" if self.host else self.bucket
        return f"{self.scheme}://{authority}/{quote(self.key)}"

    @property
    def account(self) -> str | None:
        """The account that an address of Azure names."""
        found = _HOST_OF_ACCOUNT.fullmatch(self.host)
        return found[1] if found else None


def _problem_of_bucket(bucket: str, host: str | None, *, is_azure: bool) -> str | None:
    if not bucket:
        return "it names no bucket. Write scheme://bucket/path"
    if not _BUCKET.fullmatch(bucket) or (host is not None and not is_azure):
        return (
            "between // and the next slash is the name of a bucket and nothing else. Give a user, "
            "a port or an endpoint as an option headwater.storage.*"
        )
    return None


def _problem_of_key(key: str, *, is_azure: bool) -> str | None:
    parts = key.split("/") if key else []
    if "" in parts:
        return "it has an empty part, where two slashes meet. Write one slash"
    if "." in parts or ".." in parts:
        return "'.' and '..' are no folders to an object store. Write the path that is meant"
    if _CONTROL_CHARACTER.search(key):
        return "it holds a control character. Choose another name"
    if "?" in key:
        return "it has a question mark, which begins the query of a URL. Choose another name"
    if is_azure and "\\" in key:
        return "Azure takes its backslash for a slash. Write the slash"
    if is_azure and any(part.endswith(".") for part in parts):
        return "Azure keeps no dot at the end of a part of a path. Choose another name"
    return None
