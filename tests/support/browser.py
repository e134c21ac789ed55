"""A real Chromium, driven over a pipe: pages are opened, looked at, and used by keyboard.

The protocol is Chromium's own (DevTools): a command is a line of JSON that ends with a zero byte,
and so is an answer or an event. So nothing is needed beside the browser, which the tests of the
report use as well.
"""

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Self

from tests.support.processes import java_env

TIMEOUT_S: Final = 60.0

_OPTIONS: Final = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--disable-background-networking",
    "--no-first-run",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)

_START: Final = """
import fcntl, os, sys
reads, writes = (fcntl.fcntl(int(end), fcntl.F_DUPFD, 10) for end in sys.argv[1:3])
os.dup2(reads, 3)
os.dup2(writes, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
"""The browser wants the pipe's ends as its files 3 and 4, whatever they are here."""

_KEYS: Final = {
    "Tab": ("Tab", 9, ""),
    "Enter": ("Enter", 13, "\r"),
    "Space": ("Space", 32, " "),
    "ArrowDown": ("ArrowDown", 40, ""),
}


class BrowserError(AssertionError):
    """The browser cannot do what was asked, or a page's script failed."""


class Browser:
    def __init__(self, directory: Path) -> None:
        """`directory` is for its profile. Skips the test where there is no Chromium."""
        found = shutil.which("chromium") or shutil.which("chromium-browser")
        if found is None:
            java_env.missing("there is no chromium")
        self.problems: list[str] = []
        """Errors and warnings that pages have caused, refusals of their policy among them."""
        self.requests: dict[str, str] = {}
        """What pages have asked for: URL by the request's id."""
        self.transferred_bytes = 0
        self._next_id = 1
        self._buffer = b""
        self._events: deque[dict[str, Any]] = deque()
        reads, self._to = os.pipe()
        self._from, writes = os.pipe()
        profile = f"--user-data-dir={directory / 'profile'}"
        ends = (str(reads), str(writes))
        self._process = subprocess.Popen(
            [sys.executable, "-c", _START, *ends, found, *_OPTIONS, profile, "about:blank"],
            pass_fds=(reads, writes),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(reads)
        os.close(writes)
        self._session: str | None = None
        try:
            self._attach()
        except BaseException:
            self.__exit__()
            raise

    def _attach(self) -> None:
        """Open the page that all is done in."""
        target = self.command("Target.createTarget", url="about:blank")["targetId"]
        attached = self.command("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.command(f"{domain}.enable")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._to)
        os.close(self._from)

    # What a test does.

    def open(self, url: str) -> None:
        """Load a page again; returns when it and its modules are loaded."""
        self.command("Page.navigate", url="about:blank")
        self.command("Page.navigate", url=url)
        self.wait("document.readyState === 'complete' && location.href !== 'about:blank'")

    def evaluate(self, script: str) -> Any:  # noqa: ANN401 - whatever JSON has.
        """The value of an expression in the page, promises awaited."""
        done = self.command(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in done:
            raise BrowserError(json.dumps(done["exceptionDetails"])[:2_000])
        return done["result"].get("value")

    def wait(self, condition: str, *, what: Callable[[], object] | None = None) -> None:
        """Return when an expression is true in the page. `what` tells why it never was."""
        ends_s = time.monotonic() + TIMEOUT_S
        while not self.evaluate(f"Boolean({condition})"):
            if time.monotonic() > ends_s:
                told = (
                    self.evaluate("document.body.innerText.slice(0, 2000)")
                    if what is None
                    else what()
                )
                raise BrowserError(f"never: {condition}; the page: {told}; {self.problems}")
            time.sleep(0.02)

    def text(self, selector: str = "body") -> str:
        """What can be read in the first element of that kind."""
        found = self.evaluate(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''")
        return str(found)

    def size(self, width: int, height: int = 900, *, is_phone: bool = False) -> None:
        self.command(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=is_phone,
        )

    def theme(self, name: str) -> None:
        """light or dark."""
        features = [{"name": "prefers-color-scheme", "value": name}]
        self.command("Emulation.setEmulatedMedia", features=features)

    def press(self, key: str) -> None:
        """A key of `_KEYS`, as from a keyboard."""
        code, number, text = _KEYS[key]
        given = {
            "key": text if key == "Space" else key,
            "code": code,
            "windowsVirtualKeyCode": number,
        }
        if text:
            given["text"] = text
        self.command("Input.dispatchKeyEvent", type="keyDown", **given)
        given.pop("text", None)
        self.command("Input.dispatchKeyEvent", type="keyUp", **given)

    def type(self, text: str) -> None:
        self.command("Input.insertText", text=text)

    def picture(self, path: Path, *, whole: bool = False) -> None:
        """Save what is seen as PNG, of the whole page if asked for."""
        data = self.command("Page.captureScreenshot", captureBeyondViewport=whole)["data"]
        path.write_bytes(base64.b64decode(data))

    # The protocol.

    def command(self, method: str, **parameters: object) -> dict[str, Any]:
        number = self._next_id
        self._next_id += 1
        message: dict[str, object] = {"id": number, "method": method, "params": parameters}
        if self._session is not None and not method.startswith("Target."):
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == number:
                if "error" in answer:
                    raise BrowserError(f"{method}: {answer['error']}")
                result: dict[str, Any] = answer["result"]
                return result
            self._note(answer)

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._from], [], [], TIMEOUT_S)
            data = os.read(self._from, 1 << 20) if ready else b""
            if not data:
                raise BrowserError("the browser says nothing more")
            self._buffer += data
        message, _, self._buffer = self._buffer.partition(b"\0")
        told: dict[str, Any] = json.loads(message)
        return told

    def _note(self, event: Mapping[str, Any]) -> None:
        given = event.get("params", {})
        match event.get("method"):
            case "Runtime.exceptionThrown":
                details = given["exceptionDetails"]
                told = details.get("exception", {}).get("description", details["text"])
                self.problems.append(str(told))
            case "Runtime.consoleAPICalled" if given["type"] in {"error", "warning", "assert"}:
                self.problems.append(json.dumps(given["args"])[:500])
            case "Log.entryAdded" if given["entry"]["level"] in {"error", "warning"}:
                entry = given["entry"]
                self.problems.append(f"{entry['source']}: {entry['text']} {entry.get('url', '')}")
            case "Network.requestWillBeSent":
                self.requests[given["requestId"]] = given["request"]["url"]
            case "Network.loadingFinished":
                self.transferred_bytes += int(given["encodedDataLength"])
