"""The address on which a watcher's HTTP port listens."""

from typing import Final, NamedTuple

PORT: Final = 9308
_PORT_MAX: Final = 65_535


class Listen(NamedTuple):
    host: str = "localhost"
    """Empty for every interface."""
    port: int = PORT
    """0 for any free port."""
    is_given: bool = False
    """Whether the user chose the address; if so, no other port is tried."""

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse_listen(text: str) -> Listen:
    """Parse HOST:PORT; the host of an IPv6 address is in brackets. Raises ValueError."""
    host, colon, port = text.rpartition(":")
    if not colon or not (port.isascii() and port.isdigit()) or int(port) > _PORT_MAX:
        raise ValueError(f"{text!r} is not HOST:PORT")
    return Listen(host.removeprefix("[").removesuffix("]"), int(port), is_given=True)
