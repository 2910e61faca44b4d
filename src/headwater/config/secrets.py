"""What must not be shown: keys of storage among the options, and those in URLs.

Options are printed with tables, plans and errors that hold them. So they travel in a mapping whose
text has no secrets in it; its values are what they were.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

HIDDEN = "***"

_STORAGE = "headwater.storage."
_SHOWN = frozenset(
    {
        "allow_http",
        "allow_invalid_certificates",
        "bucket",
        "connect_timeout",
        "container_name",
        "endpoint",
        "fsync",
        "proxy_url",
        "read_timeout",
        "region",
        "timeout",
        "user_agent",
        "virtual_hosted_style_request",
    }
)
"""Settings of storage that help whoever reads a message. All others are hidden, known or not."""
_SECRET = re.compile(r"secret|passw|token|credential|access.?key|account.?key|signature", re.I)
_USER = re.compile(r"(?<=://)[^/@\s:]*:[^/@\s]*(?=@)")
_QUERY = re.compile(r"(?<=[\w/])\?[^\s'\"]+")
_BYTES_MIN = 4
"""A shorter value would hide letters of other words."""


def is_secret(key: str) -> bool:
    """Whether the value of an option is not to be shown."""
    if key.startswith(_STORAGE):
        return key.removeprefix(_STORAGE).lower() not in _SHOWN
    return _SECRET.search(key) is not None


def shown(key: str, value: str) -> str:
    """Return the value of an option as it may be shown."""
    return HIDDEN if is_secret(key) else without_url_secrets(value)


def without_url_secrets(text: str) -> str:
    """Return a text with the passwords and queries of its URLs hidden."""
    if "://" not in text:
        return text
    return _QUERY.sub(f"?{HIDDEN}", _USER.sub(HIDDEN, text))


def has_url_secrets(url: str) -> bool:
    """Whether a URL has a password or a query in it."""
    return "://" in url and without_url_secrets(url) != url


def without_values(text: str, options: Mapping[str, Any]) -> str:
    """Return a text with the values of secret options hidden, wherever they come from."""
    secrets = {str(value) for key, value in options.items() if is_secret(key)}
    for value in sorted(secrets, key=len, reverse=True):
        if len(value) >= _BYTES_MIN:
            text = text.replace(value, HIDDEN)
    return text


class Options(dict[str, str]):
    """Options by key; its text shows no secret."""

    def __repr__(self) -> str:
        return repr({key: shown(key, value) for key, value in self.items()})

    def __str__(self) -> str:
        return repr(self)


def shown_options(options: Mapping[str, str]) -> Options:
    """Return options as a mapping that shows no secret."""
    return options if isinstance(options, Options) else Options(options)
