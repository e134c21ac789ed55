"""Listening sockets, with the options that accepted sockets inherit."""

import errno
import fcntl
import os
import resource
import socket
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from kohort.broker.network.connection.limits import UNLIMITED

KEEPALIVE_IDLE_S = 120
KEEPALIVE_INTERVAL_S = 30
KEEPALIVE_PROBES = 4
"""A machine that vanished is detected after four minutes, not after the kernel's two hours."""

OTHER_DESCRIPTORS = 64
"""Descriptors that a broker has open beside connections and logs: listeners, metrics, databases,
the loop's."""

TABLE_MAX = 16_384
"""Descriptors for which the kernel's table has room from the start: 8 bytes each."""

SENDERS_PART = 8
"""One descriptor in this many is reserved for connections that are sent files; for others, files
are read."""

_NO_SUCH_FAMILY = {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}


def listening_sockets(
    host: str, port: int, *, send_buffer_bytes: int = -1, receive_buffer_bytes: int = -1
) -> list[socket.socket]:
    """Return bound sockets for every address of `host`; they do not listen yet.

    An empty host means every interface. Port 0 uses one free port for all addresses. A buffer size
    of -1 leaves it to the system. Address families that this machine lacks are omitted.

    Raises:
        OSError: no address could be bound, or the port is in use.
    """
    found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    bound: list[socket.socket] = []
    missing: OSError | None = None
    try:
        for family, *_, address in dict.fromkeys(found):
            host_there, port_there, *rest = address
            wanted = (host_there, port_there or _port(bound), *rest)
            try:
                bound.append(_bind(family, wanted, send_buffer_bytes, receive_buffer_bytes))
            except OSError as error:
                if error.errno not in _NO_SUCH_FAMILY:
                    raise
                missing = error
    except OSError:
        close_all(bound)
        raise
    if not bound:
        raise missing or OSError(errno.EADDRNOTAVAIL, f"{host!r} has no address")
    return bound


def close_all(sockets: Iterable[socket.socket]) -> None:
    for one in sockets:
        one.close()


def raise_descriptor_limit() -> int:
    """Raise this process's limit on open descriptors to the maximum allowed; return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def reserve_descriptors(descriptors: int) -> None:
    """Make room for so many in the kernel's table of this process, `TABLE_MAX` at most.

    The table doubles when it is full, which waits until no processor looks at the old one: with
    several threads that took an accept 15 to 30 ms.
    """
    size = TABLE_MAX if descriptors == resource.RLIM_INFINITY else min(descriptors, TABLE_MAX)
    with Path(os.devnull).open("rb") as any_file, suppress(OSError):
        os.close(fcntl.fcntl(any_file, fcntl.F_DUPFD, size - 1))


def senders_within(descriptors: int) -> int:
    """Return how many connections may have a second descriptor for sending files."""
    return UNLIMITED if descriptors == resource.RLIM_INFINITY else descriptors // SENDERS_PART


def connections_within(descriptors: int, log_files_max: int) -> int:
    """Return how many connections leave enough descriptors for the logs, which take up to half of
    them, and for sending files.

    Without such a limit, clients that open connections could keep partitions from being opened.
    """
    if descriptors == resource.RLIM_INFINITY:
        return UNLIMITED
    log_files = min(log_files_max, descriptors // 2)
    others = min(OTHER_DESCRIPTORS, descriptors // 4)
    return descriptors - log_files - others - senders_within(descriptors)


def _port(bound: list[socket.socket]) -> int:
    """Return the port of the first address, which the others share."""
    return int(bound[0].getsockname()[1]) if bound else 0


def _bind(
    family: int,
    address: tuple[str | int | bytes, ...],
    send_buffer_bytes: int,
    receive_buffer_bytes: int,
) -> socket.socket:
    one = socket.socket(family, socket.SOCK_STREAM)
    try:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        if send_buffer_bytes >= 0:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
        if receive_buffer_bytes >= 0:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in (
            ("TCP_KEEPIDLE", KEEPALIVE_IDLE_S),
            ("TCP_KEEPINTVL", KEEPALIVE_INTERVAL_S),
            ("TCP_KEEPCNT", KEEPALIVE_PROBES),
        ):
            # macOS lacks some of them.
            if hasattr(socket, name):
                one.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        one.setblocking(False)
        one.bind(address)
    except OSError:
        one.close()
        raise
    return one
