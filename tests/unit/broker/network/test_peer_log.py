import logging

import pytest

from broker.clock import VirtualClock
from broker.network.peer_log import INTERVAL_MS, LINES_PER_INTERVAL, PeerLog


def test_lines_of_one_kind_are_rationed_and_the_rest_is_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = VirtualClock()
    log = PeerLog(logging.getLogger("peers"), clock)
    for number in range(100):
        log.note("bad_frame", "Closed %s", number)
    assert len(caplog.messages) == LINES_PER_INTERVAL
    log.note("idle", "Another kind of line")
    assert caplog.messages[-1] == "Another kind of line"
    clock.advance(INTERVAL_MS)
    log.note("bad_frame", "Closed %s", 100)
    assert caplog.messages[-1] == f"Closed 100 (and {100 - LINES_PER_INTERVAL} more like it)"
    log.note("bad_frame", "Closed %s", 101)
    assert caplog.messages[-1] == "Closed 101"
