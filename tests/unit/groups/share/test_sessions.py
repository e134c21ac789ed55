"""Share sessions and their epochs."""

import pytest

from kohort.groups.share.sessions import SessionPartition, ShareSession, ShareSessions
from kohort.protocol.errors import ErrorCode, KafkaError

PARTITIONS = [SessionPartition(b"t" * 16, number) for number in range(4)]


def opened(sessions: ShareSessions, member: str = "m", connection: int = 1) -> ShareSession:
    return sessions.fetch("g", member, 0, connection, acknowledges=False)


def error_of(sessions: ShareSessions, epoch: int, *, acknowledge: bool) -> ErrorCode | None:
    try:
        if acknowledge:
            sessions.acknowledge("g", "m", epoch)
        else:
            sessions.fetch("g", "m", epoch, 1, acknowledges=False)
    except KafkaError as error:
        return error.code
    return None


def test_both_apis_share_the_epoch() -> None:
    sessions = ShareSessions(10)
    session = opened(sessions)
    assert session.epoch == 1
    assert sessions.acknowledge("g", "m", 1) is session
    assert sessions.fetch("g", "m", 2, 7, acknowledges=True) is session
    assert session.epoch == 3


@pytest.mark.parametrize("acknowledge", [False, True])
def test_other_epochs_are_refused_and_not_consumed(acknowledge: bool) -> None:
    sessions = ShareSessions(10)
    assert error_of(sessions, 1, acknowledge=acknowledge) is ErrorCode.SHARE_SESSION_NOT_FOUND
    assert error_of(sessions, -1, acknowledge=acknowledge) is ErrorCode.SHARE_SESSION_NOT_FOUND
    session = opened(sessions)
    for epoch in (2, -2, 2**31 - 1):
        error = error_of(sessions, epoch, acknowledge=acknowledge)
        assert error is ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert session.epoch == 1


def test_the_epoch_after_the_highest_is_one() -> None:
    sessions = ShareSessions(10)
    session = opened(sessions)
    session.epoch = 2**31 - 1
    sessions.acknowledge("g", "m", 2**31 - 1)
    assert session.epoch == 1


def test_acknowledgements_do_not_open_a_session() -> None:
    sessions = ShareSessions(10)
    assert error_of(sessions, 0, acknowledge=True) is ErrorCode.INVALID_SHARE_SESSION_EPOCH
    with pytest.raises(KafkaError, match="INVALID_REQUEST"):
        sessions.fetch("g", "m", 0, 1, acknowledges=True)
    assert len(sessions) == 0


@pytest.mark.parametrize("acknowledge", [False, True])
def test_the_final_epoch_ends_a_session(acknowledge: bool) -> None:
    sessions = ShareSessions(10)
    session = opened(sessions)
    assert error_of(sessions, -1, acknowledge=acknowledge) is None
    assert session.is_closed
    assert len(sessions) == 0
    assert sessions.connection_closed(1) == []


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


def test_all_sessions_of_a_connection_end_with_it() -> None:
    sessions = ShareSessions(10)
    ended = [opened(sessions, "a"), opened(sessions, "b")]
    other = opened(sessions, "c", connection=2)
    assert sessions.connection_closed(1) == ended
    assert (len(sessions), other.is_closed) == (1, False)


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
