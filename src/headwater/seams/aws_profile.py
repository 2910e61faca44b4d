"""Credentials of S3 from the files that the vendor's own tools keep: `~/.aws`.

obstore knows the environment, web identities, containers and instances, but not these files. Keys
that stand in a profile are read from it, again before they get old, so that whoever renews them in
the file renews them for a job that runs. What a profile only describes (a role to assume, a single
sign-on, a process to ask) is left to boto3, if it is installed.
"""

from __future__ import annotations

import configparser
import os
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.errors import ErrorKind, InvalidInputError, StorageError

if TYPE_CHECKING:
    from obstore.store import S3Credential, S3CredentialProvider

# How old keys from a file may get before the file is looked at again.
_READ_AGAIN_AFTER = timedelta(minutes=5)

# Any of these in the environment says where keys come from; obstore reads them itself.
_IN_ENVIRONMENT = (
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)
_DESCRIBED_BY = ("role_arn", "sso_session", "sso_start_url", "credential_process")


@dataclass(frozen=True, slots=True)
class ProfileCredentials:
    """Keys from a profile, as obstore asks for them. It keeps none of them."""

    profile: str

    def __call__(self) -> S3Credential:
        found = _load_profile(self.profile)
        try:
            return {
                "access_key_id": found["aws_access_key_id"],
                "secret_access_key": found["aws_secret_access_key"],
                "token": found.get("aws_session_token"),
                "expires_at": datetime.now(UTC) + _READ_AGAIN_AFTER,
            }
        except KeyError as missing:
            raise StorageError(
                f"The profile {self.profile!r} of {_credentials_file()} has no {missing}. Add it, "
                "or name another profile",
                kind=ErrorKind.STORAGE_DENIED,
            ) from missing


def profile_settings(profile: str | None) -> tuple[dict[str, str], S3CredentialProvider | None]:
    """Return what a profile says: settings of the store, and where keys come from.

    Without a name it is the profile of the environment, and it may be absent.

    Raises:
        InvalidInputError: kind INVALID_OPTION; the profile is absent, or needs boto3.
    """
    name = profile or os.environ.get("AWS_PROFILE") or "default"
    found = _load_profile(name)
    if not found and profile:
        raise InvalidInputError(
            f"There is no profile {profile!r} in {_credentials_file()} or {_config_file()}. "
            "Correct headwater.storage.profile",
            kind=ErrorKind.INVALID_OPTION,
        )
    settings = {
        ours: found[theirs]
        for theirs, ours in (("region", "region"), ("endpoint_url", "endpoint"))
        if theirs in found
    }
    if profile is None and any(name in os.environ for name in _IN_ENVIRONMENT):
        return settings, None
    if "aws_access_key_id" in found:
        return settings, ProfileCredentials(name)
    if any(key in found for key in _DESCRIBED_BY):
        return settings, _ask_boto3(name)
    return settings, None


def _ask_boto3(profile: str) -> S3CredentialProvider:
    try:
        from boto3 import Session
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError as error:
        raise InvalidInputError(
            f"The profile {profile!r} says how to get keys (a role, a single sign-on or a process) "
            "and has none itself. Install boto3, which can ask for them, or give keys",
            kind=ErrorKind.INVALID_OPTION,
        ) from error
    return Boto3CredentialProvider(Session(profile_name=profile))


def _load_profile(name: str) -> dict[str, str]:
    """Return what both files say of a profile; keys of the file of credentials count more."""
    of_config = name if name == "default" else f"profile {name}"
    return {
        **_load_section(_config_file(), of_config),
        **_load_section(_credentials_file(), name),
    }


def _load_section(path: Path, section: str) -> dict[str, str]:
    # Values may hold a per cent sign, and nested settings are lines of one value.
    parser = configparser.RawConfigParser()
    try:
        parser.read(path, encoding="utf-8")
    except (configparser.Error, UnicodeDecodeError) as error:
        raise InvalidInputError(
            f"{path} is not in the form of such files. Correct it", kind=ErrorKind.INVALID_OPTION
        ) from error
    return dict(parser[section]) if parser.has_section(section) else {}


def _credentials_file() -> Path:
    return _file("AWS_SHARED_CREDENTIALS_FILE", "credentials")


def _config_file() -> Path:
    return _file("AWS_CONFIG_FILE", "config")


def _file(variable: str, name: str) -> Path:
    return Path(os.environ.get(variable) or Path.home() / ".aws" / name).expanduser()
