"""When a connection authenticates again."""

import math

import pytest

from kohort.client.net.greeting import PAUSE_S, Session


def test_a_session_without_an_end_is_never_renewed() -> None:
    session = Session()
    assert not session.is_due(1e12)
    session.begin(0, 5.0)
    assert not session.is_due(1e12)
    assert not session.is_over(1e12)


@pytest.mark.parametrize(("fraction", "due_s"), [(0.0, 85.0), (1.0, 95.0)])
def test_a_session_is_renewed_shortly_before_its_end(fraction: float, due_s: float) -> None:
    session = Session(lambda: fraction)
    session.begin(100_000, 1_000.0)
    assert not session.is_due(math.nextafter(1_000 + due_s, 0))
    assert session.is_due(1_000 + due_s)
    assert not session.is_over(1_099.9)
    assert session.is_over(1_100)
    session.begin(100_000, 1_100.0)
    assert not session.is_due(1_184.9)


def test_no_one_authenticates_twice_within_a_second() -> None:
    session = Session()
    session.begin(300, 10.0)
    assert session.pause_s(10.25) == pytest.approx(0.75)
    assert session.pause_s(10 + PAUSE_S) == 0


def test_what_cannot_be_renewed_is_tried_again_while_there_is_time() -> None:
    session = Session(lambda: 0.0)
    session.begin(100_000, 0.0)
    session.postpone(88.0)
    assert not session.is_due(90.9)
    assert session.is_due(91.0)
    session.postpone(99.9)
    assert not session.is_due(100.8)
    assert session.is_due(100.9)
