"""Broker addresses."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from kohort.client.core.errors import ConfigError

DEFAULT_PORT: Final = 9092


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def parse_bootstrap(
    servers: str | Iterable[str], setting: str = "bootstrap_servers"
) -> list[Address]:
    """Parse `host:port` texts, given as a list or separated by commas; the default port is 9092.

    Args:
        setting: name of the setting, for error messages.

    Raises:
        ConfigError: no address, or an invalid one.
    """
    texts = servers.split(",") if isinstance(servers, str) else list(servers)
    addresses = [_parse_address(text.strip(), setting) for text in texts if text.strip()]
    if not addresses:
        raise ConfigError(f"{setting} is empty; set at least one host:port")
    return addresses


def _parse_address(text: str, setting: str) -> Address:
    # An IPv6 address contains colons itself, and must be in brackets if a port follows.
    host, _, port = text.rpartition(":") if "]:" in text or text.count(":") == 1 else (text, "", "")
    host = host.removeprefix("[").removesuffix("]")
    if not _is_host(host) or (
        port and not (port.isascii() and port.isdecimal() and int(port) < 1 << 16)
    ):
        raise ConfigError(f"{setting}: {text!r} is not host:port")
    return Address(host, int(port) if port else DEFAULT_PORT)


def _is_host(text: str) -> bool:
    """Whether the host can be passed to the resolver, which raises UnicodeError for some."""
    try:
        return bool(text.encode("idna")) and "/" not in text
    except UnicodeError:
        return False
