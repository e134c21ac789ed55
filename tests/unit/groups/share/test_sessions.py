"""Share sessions and their epochs."""

import pytest

from kohort.groups.share.sessions import SessionPartition, ShareSession, ShareSessions
from kohort.protocol.errors import KafkaError

PARTITIONS = [SessionPartition(b"t" * 16, number) for number in range(4)]


def opened(sessions: ShareSessions, member: str = "m", connection: int = 1) -> ShareSession:
    return sessions.fetch("g", member, 0, connection, acknowledges=False)


def test_the_epoch_after_the_highest_is_one() -> None:
    sessions = ShareSessions(10)
    session = opened(sessions)
    session.epoch = 2**31 - 1
    sessions.acknowledge("g", "m", 2**31 - 1)
    assert session.epoch == 1


def test_a_member_replaces_its_session_even_at_the_limit() -> None:
    sessions = ShareSessions(1)
    old = opened(sessions, connection=1)
    new = opened(sessions, connection=2)
    assert (old.is_closed, new.is_closed, len(sessions)) == (True, False, 1)
    with pytest.raises(KafkaError, match="SHARE_SESSION_LIMIT_REACHED"):
        opened(sessions, "another")
    assert sessions.connection_closed(1) == []
    assert sessions.connection_closed(2) == [new]
    assert new.is_closed
    opened(sessions, "another")


def test_partitions_are_added_and_then_forgotten() -> None:
    session = opened(ShareSessions(10))
    assert session.update(PARTITIONS[:2]) == set(PARTITIONS[:2])
    assert session.update(PARTITIONS[1:], [PARTITIONS[0], PARTITIONS[3]]) == {PARTITIONS[2]}
    assert list(session.partitions) == PARTITIONS[1:3]
    assert session.update([], [PARTITIONS[0]]) == set()


def test_nothing_is_kept_of_a_forgotten_partition() -> None:
    session = opened(ShareSessions(10))
    session.update(PARTITIONS)
    session.due |= set(PARTITIONS)
    session.unknown |= set(PARTITIONS)
    session.located = dict.fromkeys(PARTITIONS)
    session.update([], PARTITIONS)
    assert not session.due
    assert not session.unknown
    assert not session.located


def test_each_epoch_begins_at_another_partition() -> None:
    session = opened(ShareSessions(10))
    assert session.rotated(1) == []
    session.update(PARTITIONS)
    assert session.rotated(1) == [*PARTITIONS[1:], PARTITIONS[0]]
    assert session.rotated(7) == [PARTITIONS[3], *PARTITIONS[:3]]
