"""Where brokers listen, and the texts that say so."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from kohort.client.core.errors import ConfigError

DEFAULT_PORT: Final = 9092


class Address(NamedTuple):
    """Where a broker listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def parse_bootstrap(
    servers: str | Iterable[str], setting: str = "bootstrap_servers"
) -> list[Address]:
    """`host:port` texts, as a list or separated by commas; the port is 9092 if it is not said.

    Args:
        setting: where they come from, for what is said if they cannot be read.

    Raises:
        ConfigError: no address, or one that cannot be read.
    """
    texts = servers.split(",") if isinstance(servers, str) else list(servers)
    found = [_parse_address(text.strip(), setting) for text in texts if text.strip()]
    if not found:
        raise ConfigError(f"{setting} is empty; give it at least one host:port")
    return found


def _parse_address(text: str, setting: str) -> Address:
    # An address of IPv6 has colons of its own, and stands in brackets if a port follows.
    host, _, port = text.rpartition(":") if "]:" in text or text.count(":") == 1 else (text, "", "")
    host = host.removeprefix("[").removesuffix("]")
    if not _is_host(host) or (
        port and not (port.isascii() and port.isdecimal() and int(port) < 1 << 16)
    ):
        raise ConfigError(f"{setting}: {text!r} is not host:port")
    return Address(host, int(port) if port else DEFAULT_PORT)


def _is_host(text: str) -> bool:
    """Whether it can be looked up at all; the resolver raises anything but an OSError else."""
    try:
        return bool(text.encode("idna")) and "/" not in text
    except UnicodeError:
        return False
