"""An issuer of keys for tokens, which does with each connection what a test says."""

import socket
import threading
from collections.abc import Callable
from typing import Final, Self

HEAD: Final = b"HTTP/1.1 200 OK\r\n"
Serve = Callable[[socket.socket], None]


class Issuer:
    """A server on loopback that does one thing with each connection; `serve` may be replaced."""

    def __init__(self, serve: Serve) -> None:
        self.serve = serve
        self.asked: list[bytes] = []
        """The request of each connection."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/keys"

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(client,), daemon=True).start()

    def _answer(self, client: socket.socket) -> None:
        with client:
            try:
                self.asked.append(client.recv(65_536))
                self.serve(client)
                client.shutdown(socket.SHUT_WR)
                while client.recv(65_536):
                    pass
            except OSError:
                return


def sized(body: bytes) -> bytes:
    return HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body


def saying(data: bytes) -> Serve:
    return lambda client: client.sendall(data)
