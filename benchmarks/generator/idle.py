"""Connections that say hello and then nothing."""

import socket
import time
from typing import Final

from benchmarks.generator.frames import ask, connect
from benchmarks.harness import Measured
from benchmarks.processes import resident_mib
from kohort.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

_WARM: Final = 100


def run(port: int, pid: int, connections: int, settle_s: float) -> Measured:
    """Memory for each of them.

    Some were there before, so that what the first of them needs is not counted.
    """
    kept = [_greet(port) for _ in range(_WARM)]
    time.sleep(settle_s)
    before_mib = resident_mib(pid)
    began_s = time.perf_counter()
    kept += [_greet(port) for _ in range(connections)]
    took_s = time.perf_counter() - began_s
    time.sleep(settle_s)
    memory_mib = resident_mib(pid) - before_mib
    for connection in kept[:: max(1, connections // 100)]:
        ask(connection, _HELLO, ApiVersionsResponse, 4)
    for connection in kept:
        connection.close()
    return {"memory": memory_mib * 1_024 / connections, "connect": took_s * 1e3 / connections}


_HELLO: Final = ApiVersionsRequest(client_software_name="bench", client_software_version="1")


def _greet(port: int) -> socket.socket:
    connection = connect(port)
    answer = ask(connection, _HELLO, ApiVersionsResponse, 4)
    if answer.error_code:
        raise RuntimeError(f"a wrong answer to ApiVersions: {answer!r}")
    return connection
