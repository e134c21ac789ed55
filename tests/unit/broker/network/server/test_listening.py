import errno
import multiprocessing
import re
import resource
import socket
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from kohort.broker.network.server.listening import (
    KEEPALIVE_IDLE_S,
    TABLE_MAX,
    close_all,
    connections_within,
    listening_sockets,
    raise_descriptor_limit,
    reserve_descriptors,
)


def test_every_address_of_a_host_gets_the_same_port() -> None:
    sockets = listening_sockets("", 0)
    try:
        assert len({one.getsockname()[1] for one in sockets}) == 1
        assert socket.AF_INET in {one.family for one in sockets}
    finally:
        close_all(sockets)


def test_accepted_sockets_inherit_keepalive_and_no_delay() -> None:
    (listener,) = listening_sockets("127.0.0.1", 0)
    listener.listen()
    with listener, socket.create_connection(listener.getsockname()):
        listener.setblocking(True)
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            idle_s = accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE)
            assert idle_s == KEEPALIVE_IDLE_S


def test_buffer_sizes_are_set_where_they_are_given() -> None:
    (default,) = listening_sockets("127.0.0.1", 0)
    (sized,) = listening_sockets(
        "127.0.0.1", 0, send_buffer_bytes=50_000, receive_buffer_bytes=60_000
    )
    with default, sized:
        # The kernel doubles what is asked for.
        assert sized.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) == 100_000
        assert sized.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == 120_000
        assert default.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) != 120_000


def test_a_port_that_is_taken_is_an_error() -> None:
    (first,) = listening_sockets("127.0.0.1", 0)
    first.listen()
    with first, pytest.raises(OSError) as caught:
        listening_sockets("127.0.0.1", first.getsockname()[1])
    assert caught.value.errno == errno.EADDRINUSE


def test_a_host_that_is_not_this_machine_is_an_error() -> None:
    with pytest.raises(OSError, match="assign requested address"):
        listening_sockets("192.0.2.1", 0)


def test_the_limit_of_open_files_is_raised_to_what_is_allowed() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 256), hard))
        assert raise_descriptor_limit() == hard
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == hard
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_connections_leave_descriptors_to_the_logs() -> None:
    assert connections_within(1_024, 8_192) == 1_024 - 512 - 64 - 128
    assert connections_within(100_000, 8_192) == 100_000 - 8_192 - 64 - 12_500
    assert connections_within(64, 8_192) == 64 - 32 - 16 - 8
    assert connections_within(resource.RLIM_INFINITY, 8_192) > 1_000_000


def table_after(descriptors: int) -> tuple[int, int, int]:
    """How many descriptors are allowed, the size of the kernel's table after the reservation, and
    how many more descriptors are open then.
    """
    allowed, files = raise_descriptor_limit(), open_files()
    reserve_descriptors(descriptors)
    return allowed, table_size(), open_files() - files


def table_size() -> int:
    found = re.search(r"FDSize:\s+(\d+)", Path("/proc/self/status").read_text())
    assert found
    return int(found[1])


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="told by Linux alone")
@pytest.mark.parametrize(
    ("descriptors", "size"),
    [(1_000, 1_000), (resource.RLIM_INFINITY, TABLE_MAX)],
)
def test_the_table_of_descriptors_is_large_from_the_start(descriptors: int, size: int) -> None:
    # In a process of its own, since the table never shrinks. Its size before the reservation is the
    # one that its parent needed.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        allowed, after, more = pool.submit(table_after, descriptors).result(60)
    assert more == 0
    # A reservation of more descriptors than are allowed changes nothing.
    if allowed == resource.RLIM_INFINITY or allowed >= size:
        assert after >= size
