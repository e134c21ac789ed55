"""When clients were last seen to be active."""

import pytest

from kohort.broker.network.connection import limits
from kohort.broker.network.connection.limits import Activity, NetworkLimits
from kohort.testing.virtual_clock import VirtualClock
from tests.unit.broker.network.edge import Edge


def test_a_client_is_known_by_its_id_and_its_host() -> None:
    clock = VirtualClock()
    seen = Activity(clock)
    seen.record("a", "/h")
    clock.advance(4_000)
    seen.record("b", "/h")
    clock.advance(5_000)

    assert seen.since_ms("a", "/h") == 9_000
    assert seen.since_ms("b", "/h") == 5_000
    assert seen.since_ms("a", "/other") is None


def test_those_that_were_seen_last_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CLIENTS_MAX", 2)
    seen = Activity(VirtualClock())
    for name in ("a", "b", "a", "c"):
        seen.record(name, "/h")

    assert [name for name in "abc" if seen.since_ms(name, "/h") is not None] == ["a", "c"]


async def test_a_round_through_the_connections_sees_what_came_since_the_last_one() -> None:
    edge = Edge(NetworkLimits())
    edge.connect()
    edge.connection.info.active_as = "c"
    host = edge.connection.info.peer_host
    edge.connection.check(0)
    edge.clock.advance(2_000)
    edge.connection.check(2_000)

    assert edge.server.activity.since_ms("c", host) == 2_000
