"""A crowd that comes and never gets in, in a process of its own.

`python -m tests.support.network.flood KIND PORT RATE` goes on until its input ends, and prints then
how many have come and in how many seconds. Each comes from an address of 127.0.0.0/8 of its own.
"""

import itertools
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Final

from tests.support import messages as m
from tests.support.measures.weights import weigh
from tests.support.network.wire import framed, request_body

THREADS: Final = 4
OPEN_MAX: Final = 100
"""Connections of each thread; the oldest is closed then, whatever it waits for."""
_AT_ONCE: Final = struct.pack("ii", 1, 0)
"""SO_LINGER: closed with RST, so that no port waits."""


def client_hello() -> bytes:
    outgoing = ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), outgoing).do_handshake()
    return outgoing.read()


def attempt(mechanism: str, *tokens: bytes) -> bytes:
    """All that a client says who does not wait for answers."""
    said = [request_body(m.SaslHandshakeRequest(mechanism=mechanism), 1)]
    said += [request_body(m.SaslAuthenticateRequest(auth_bytes=token), 2) for token in tokens]
    return b"".join(map(framed, said))


def _nothing(one: socket.socket) -> socket.socket:
    return one


def _saying(data: bytes) -> Callable[[socket.socket], socket.socket]:
    def say(one: socket.socket) -> socket.socket:
        one.sendall(data)
        return one

    return say


def _shaking_hands() -> Callable[[socket.socket], socket.socket]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context.wrap_socket


KINDS: Final[Mapping[str, Callable[[], Callable[[socket.socket], socket.socket]]]] = {
    "connections": lambda: _nothing,
    "hellos": lambda: _saying(client_hello()),
    "handshakes": _shaking_hands,
    "passwords": lambda: _saying(attempt("PLAIN", b"\0alice\0wrong")),
    "scram": lambda: _saying(attempt("SCRAM-SHA-256", b"n,,n=alice,r=x", b"c=biws,r=xyz,p=AAAA")),
}


def main(kind: str, port: int, rate: float) -> tuple[int, float]:
    """How many have come, and in how many seconds."""
    act, counts = KINDS[kind](), [0] * THREADS
    is_over = threading.Event()

    def come(number: int) -> None:
        still_open: deque[socket.socket] = deque()
        due_s = time.monotonic()
        for turn in itertools.count():
            if is_over.is_set():
                break
            due_s = max(due_s + THREADS / rate, time.monotonic() - 1)
            is_over.wait(max(0.0, due_s - time.monotonic()))
            address = f"127.{1 + number}.{turn >> 8 & 255}.{turn & 255}"
            try:
                one = socket.create_connection(("127.0.0.1", port), 5, (address, 0))
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
                still_open.append(act(one))
            except OSError:
                continue
            counts[number] += 1
            if len(still_open) > OPEN_MAX:
                still_open.popleft().close()
        for one in still_open:
            one.close()

    threads = [threading.Thread(target=come, args=(number,)) for number in range(THREADS)]
    began_s = time.monotonic()
    for thread in threads:
        thread.start()
    sys.stdin.read()
    is_over.set()
    took_s = time.monotonic() - began_s
    for thread in threads:
        thread.join()
    return sum(counts), took_s


@contextmanager
def flood(
    kind: str, port: int, *, rate: float, niceness: int | None = None
) -> Iterator[list[float]]:
    """Such a process, for as long as the context lasts; the list has afterwards how many have come
    and how many came a second.

    With a niceness it is weighed as a session of its own.
    """
    counts: list[float] = []
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.network.flood", kind, str(port), str(rate)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=niceness is not None,
        text=True,
    )
    try:
        if niceness is not None:
            weigh(process.pid, niceness)
        yield counts
        said, _ = process.communicate(timeout=60)
        count, took_s = map(float, said.split())
        counts += [count, count / took_s]
    finally:
        process.kill()
        process.wait()


if __name__ == "__main__":
    print(*main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))
