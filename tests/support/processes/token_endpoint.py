"""An issuer's token endpoint in this process: it answers what a test gives it."""

import json
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple, Self
from urllib.parse import parse_qsl


class Asked(NamedTuple):
    authorization: str | None
    form: dict[str, str]


class TokenEndpoint:
    """Answers each POST by `give`, which returns the token and how many seconds it is good; all
    that was asked is in `asked`.
    """

    def __init__(self, give: Callable[[], tuple[str, float]]) -> None:
        self.asked: list[Asked] = []
        self.status = 200
        self.body: bytes | None = None
        """Said instead of a token."""
        self.headers = {"Content-Type": "application/json"}
        self.pause_s = 0.0
        """How long to wait after each byte of a body."""
        self.on_request: Callable[[], None] = lambda: None
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                form = self.rfile.read(int(self.headers["Content-Length"])).decode()
                endpoint.asked.append(Asked(self.headers["Authorization"], dict(parse_qsl(form))))
                endpoint.on_request()
                self.send_response(endpoint.status)
                body = endpoint.body
                if body is None:
                    value, lasts_s = give()
                    answer = {"access_token": value, "expires_in": lasts_s, "token_type": "Bearer"}
                    body = json.dumps(answer).encode()
                for name, text in endpoint.headers.items():
                    self.send_header(name, text)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if not endpoint.pause_s:
                    self.wfile.write(body)
                    return
                with suppress(OSError):
                    for at in range(len(body)):
                        self.wfile.write(body[at : at + 1])
                        time.sleep(endpoint.pause_s)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/token"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
