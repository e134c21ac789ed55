"""A relay between clients and a broker, which loses answers to Produce requests on their way."""

import contextlib
import socket
import struct
import threading
from collections import deque
from dataclasses import dataclass, field
from typing import Self

PRODUCE = 0


@dataclass(slots=True)
class _Link:
    """A client's connection, and ours to the broker on its behalf."""

    client: socket.socket
    broker: socket.socket
    keys: deque[int] = field(default_factory=deque)
    """API keys of the requests that are not answered yet, in order."""


class LossyProxy:
    """Listens on `port` and relays to `upstream_port`, both of 127.0.0.1.

    The first `losses` answers to Produce requests never arrive: the request has reached the broker,
    which has acted on it, and the client sees its connection end.
    """

    def __init__(self, port: int, upstream_port: int, *, losses: int) -> None:
        self.bootstrap = f"127.0.0.1:{port}"
        self._upstream_port = upstream_port
        self._lock = threading.Lock()
        self._losses = losses
        self.lost = 0
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", port))
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        # shutdown wakes the threads that are blocked on a socket; close alone does not.
        for each in (self._listener, *self._sockets):
            _end(each)
        for thread in self._threads:
            thread.join(10)
        for each in (self._listener, *self._sockets):
            each.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _address = self._listener.accept()
            except OSError:
                return
            broker = socket.create_connection(("127.0.0.1", self._upstream_port))
            self._sockets += [client, broker]
            link = _Link(client, broker)
            for relay in (self._requests, self._answers):
                thread = threading.Thread(target=relay, args=(link,), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _requests(self, link: _Link) -> None:
        with contextlib.suppress(OSError):
            while frame := _frame(link.client):
                link.keys.append(struct.unpack_from(">h", frame, 4)[0])
                link.broker.sendall(frame)
        _end(link.broker)

    def _answers(self, link: _Link) -> None:
        with contextlib.suppress(OSError):
            while frame := _frame(link.broker):
                if link.keys.popleft() == PRODUCE and self._loses():
                    break
                link.client.sendall(frame)
        _end(link.client)
        _end(link.broker)

    def _loses(self) -> bool:
        with self._lock:
            if self.lost == self._losses:
                return False
            self.lost += 1
            return True


def _frame(connection: socket.socket) -> bytes:
    """One request or answer with its length in front; empty at the end."""
    size = connection.recv(4, socket.MSG_WAITALL)
    if len(size) < 4:
        return b""
    return size + connection.recv(struct.unpack(">i", size)[0], socket.MSG_WAITALL)


def _end(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
