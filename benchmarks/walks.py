"""Python functions that a request calls on the broker's thread, and the files they are in.

The figures describe the code, not the machine: compare them before and after a refactoring.
Compiled modules and the event loop are not counted. Each figure is the smallest over several
requests, because timers and metrics also run now and then.
"""

import sys
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Final

import kohort
from benchmarks.harness import Bench, Measured, Row
from benchmarks.hooks import FedConnections, creation, requests
from benchmarks.in_process import broker_here, run_apart
from kohort.protocol.messages.membership import JoinGroupRequest, JoinGroupRequestProtocol
from tests.support.network.wire import framed, request_body

TITLE: Final = "Calls and files of a request"

_REQUESTS: Final = 20
_SOURCES: Final = str(Path(kohort.__file__).parent)


def measure(bench: Bench) -> Iterable[Row]:
    figures = bench.measure_ours(partial(run_apart, _measure, bench.directory / "walks"))
    for name, pair in figures.items():
        yield Row(name, name.rpartition(" ")[2], pair)


async def _measure(directory: Path) -> Measured:
    measured: dict[str, float] = {}
    async with broker_here(directory, 0) as broker:
        connections = FedConnections(broker)
        await connections.ask(creation(), only_one=True)
        for name, frame in {**requests(), "JoinGroup without a member id": _join()}.items():
            await connections.ask(frame, only_one=True)
            walks = [await _walk(connections, frame) for _ in range(_REQUESTS)]
            calls, files = min(walks)
            measured |= {f"{name}: calls": calls, f"{name}: files": files}
    return measured


async def _walk(connections: FedConnections, frame: bytes) -> tuple[int, int]:
    """Return the numbers of calls and of files for one request."""
    files: list[str] = []

    def on_event(called: FrameType, event: str, _: object) -> None:
        if event == "call" and called.f_code.co_filename.startswith(_SOURCES):
            files.append(called.f_code.co_filename)

    sys.setprofile(on_event)
    try:
        await connections.ask(frame, only_one=True)
    finally:
        sys.setprofile(None)
    return len(files), len(set(files))


def _join() -> bytes:
    protocol = JoinGroupRequestProtocol(name="range", metadata=b"\0\1" + bytes(8))
    request = JoinGroupRequest(
        group_id="j", session_timeout_ms=10_000, rebalance_timeout_ms=10_000, member_id="",
        protocol_type="consumer", protocols=[protocol],
    )  # fmt: skip
    return framed(request_body(request, 9))
