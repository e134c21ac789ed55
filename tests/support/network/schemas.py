"""A schema registry that answers as Confluent's does."""

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from kohort.pipeline.landing.registry import Registry

USER = "me:secret"


class Schemas:
    """What is registered, and how often somebody asked."""

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {}
        self.asked: list[str] = []
        self.port = 0
        self.missing: Any = {"error_code": 40403, "message": "Schema not found"}
        """What is said of all else."""

    @property
    def registry(self) -> Registry:
        return Registry(f"http://127.0.0.1:{self.port}", USER)


@contextmanager
def registered() -> Iterator[Schemas]:
    """A registry that answers as Confluent's does, to clients that authenticate."""
    found = Schemas()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found.asked.append(self.path)
            told = self.headers["Authorization"] or ""
            answer = found.answers.get(self.path)
            status = 404 if answer is None else 200
            if base64.b64decode(told.removeprefix("Basic ")).decode() != USER:
                status = 401
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(answer or found.missing).encode())

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found.port = server.server_port
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield found
    server.shutdown()
    thread.join()
    server.server_close()
