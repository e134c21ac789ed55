import logging

import pytest

from kohort.broker.runtime.peer_log import (
    INTERVAL_MS,
    LINES_PER_INTERVAL,
    PEERS_REMEMBERED,
    SAME_PEER_MS,
    PeerLog,
)
from kohort.testing.virtual_clock import VirtualClock


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


def test_what_is_said_once_of_a_peer_is_said_again_much_later(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = VirtualClock()
    log = PeerLog(logging.getLogger("peers"), clock)
    for peer in ("one", "two", "one", "two"):
        log.note_once("slow", peer, "%s is slow", peer)
    assert caplog.messages == ["one is slow", "two is slow"]
    clock.advance(SAME_PEER_MS)
    log.note_once("slow", "one", "%s is slow", "one")
    assert caplog.messages[-1] == "one is slow"
    assert len(caplog.messages) == 3


def test_peers_of_whom_something_was_said_are_not_remembered_without_end() -> None:
    log = PeerLog(logging.getLogger("peers"), VirtualClock())
    for number in range(2 * PEERS_REMEMBERED + 5):
        log.note_once("slow", str(number), "slow")
    assert len(log._logged_ms) <= PEERS_REMEMBERED


def test_what_only_those_who_debug_want_is_written_for_them_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = PeerLog(logging.getLogger("peers"), VirtualClock())
    log.mention("odd", "something odd")
    assert not caplog.messages
    with caplog.at_level(logging.DEBUG):
        log.mention("odd", "something odd")
    assert [(one.levelname, one.message) for one in caplog.records] == [("DEBUG", "something odd")]


def test_a_line_about_a_peer_is_one_line_that_shows_what_it_has(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = PeerLog(logging.getLogger("peers"), VirtualClock())
    forged = "a\n2026-11-26 INFO forged \x1b[31m\u2028\u202e"
    log.note("odd", "Closed %s of %s after %d: %r", "\tone", ValueError(forged), 1, forged)
    (line,) = caplog.messages
    assert line.isprintable()
    assert r"Closed \tone of a\n2026-11-26 INFO forged \x1b[31m\u2028\u202e after 1" in line
