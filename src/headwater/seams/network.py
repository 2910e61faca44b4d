"""Addresses of this machine."""

from __future__ import annotations

import ipaddress

LOOPBACK = "127.0.0.1"
LOOPBACK_NAMES = ("localhost", LOOPBACK, "[::1]")
"""What requests call it."""


def is_loopback(host: str) -> bool:
    """Whether nobody but this machine can reach a server that listens there."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def host_in_url(host: str) -> str:
    """Return an address or name as it is written before a port."""
    return f"[{host}]" if ":" in host else host
