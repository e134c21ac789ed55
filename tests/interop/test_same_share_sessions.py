"""Share sessions (KIP-932): what opens, continues and ends them, and who may use them."""

import time
from typing import Final

import pytest

from kohort.protocol.errors import ErrorCode
from tests.interop.same_answers.pair import TWIN_SETTINGS, Pair
from tests.interop.same_answers.scenes import NOWHERE, delete_topic
from tests.interop.same_answers.share import (
    ACCEPT,
    CLOSE,
    RELEASE,
    RENEW,
    SHORT_MS,
    Place,
    Session,
    ShareGroup,
    acquired,
    create_topic,
    errors,
    produce,
)
from tests.interop.same_answers.share_differences import (
    ACKNOWLEDGED_TWICE,
    ENDED_WHILE_WAITING,
    SESSIONS_OF_A_CONNECTION,
)
from tests.interop.same_answers.share_scenes import Scene

NONE: Final = ErrorCode.NONE
INVALID_REQUEST: Final = ErrorCode.INVALID_REQUEST
INVALID_EPOCH: Final = ErrorCode.INVALID_SHARE_SESSION_EPOCH
INVALID_STATE: Final = ErrorCode.INVALID_RECORD_STATE
NOT_FOUND: Final = ErrorCode.SHARE_SESSION_NOT_FOUND
LIMIT_REACHED: Final = ErrorCode.SHARE_SESSION_LIMIT_REACHED
LAST_EPOCH: Final = 2**31 - 1
UNLOCKED_S: Final = 0.5
"""Kafka answers a fetch before it unlocks its partitions; the next fetch leaves locked ones out if
it has an error to send at once."""
FAULTS: Final = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
)


@pytest.fixture
def scene(pair: Pair) -> Scene:
    return Scene(pair)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    "member_id", [None, "", " ", "m" * 36, "m" * 37, "\u0436" * 36, "\U0001f600" * 19]
)
def test_ids_of_members(scene: Scene, member_id: str | None, version: int) -> None:
    is_accepted = member_id is not None and 0 < len(member_id.encode("utf-16-le")) // 2 <= 36
    for group_id in (None, scene.group.id) if is_accepted else (None, "", scene.group.id):
        fields = {"group_id": group_id, "member_id": member_id}
        for epoch in (0, 1, CLOSE):
            request = scene.one.fetch_request([scene.place], epoch=epoch, max_wait_ms=SHORT_MS)
            for name, value in fields.items():
                setattr(request, name, value)
            scene.pair.ask(request, version)
            asked = scene.one.acknowledge_request({}, epoch=epoch)
            for name, value in fields.items():
                setattr(asked, name, value)
            scene.pair.ask(asked, version)


def test_epochs(scene: Scene) -> None:
    accept = {scene.place: [(0, 0, [ACCEPT])]}
    for epoch in (1, 2, -1, -2, LAST_EPOCH, -(2**31)):
        answers = scene.one.fetch([scene.place], epoch=epoch, max_wait_ms=SHORT_MS)
        assert answers.kafka.error_code == NOT_FOUND
        answers = scene.one.acknowledge(accept, epoch=epoch)
        assert answers.kafka.error_code == NOT_FOUND
    assert scene.one.acknowledge(accept, epoch=0).kafka.error_code == INVALID_EPOCH
    answers = scene.one.fetch([scene.place], epoch=0, acks=accept)
    assert answers.kafka.error_code == INVALID_REQUEST
    assert scene.fetch(scene.one, max_records=1, share_acquire_mode=1) == [0, 0, 1]
    for epoch in (2, 3, -2, LAST_EPOCH, -(2**31)):
        answers = scene.one.fetch(epoch=epoch, max_wait_ms=SHORT_MS)
        assert answers.kafka.error_code == INVALID_EPOCH
        answers = scene.one.acknowledge(accept, epoch=epoch)
        assert answers.kafka.error_code == INVALID_EPOCH
    # One counter for both.
    for _ in range(2):
        assert scene.acknowledge(scene.one, (0, 0, [ACCEPT])).kafka.error_code == NONE
        assert scene.one.fetch(max_wait_ms=SHORT_MS, max_records=0).kafka.error_code == NONE
    assert scene.one.epoch == 5
    assert scene.one.close().kafka.error_code == NONE
    assert scene.one.close().kafka.error_code == NOT_FOUND


def test_an_error_of_the_request_keeps_the_epoch(scene: Scene) -> None:
    scene.one.fetch([scene.place], max_records=0)
    answers = scene.one.fetch(is_renew_ack=True)
    assert answers.kafka.error_code == INVALID_REQUEST
    assert scene.one.fetch(max_records=0, version=1).kafka.error_code == NONE
    assert scene.one.epoch == 2


def test_what_may_be_left_out(scene: Scene) -> None:
    """Partitions that a session has are not named again. An idle one is not answered."""
    assert scene.fetch(scene.one, max_records=0) == []
    assert acquired(scene.one.fetch().kafka) == [(0, 0, 9, 1)]
    assert scene.one.fetch(max_wait_ms=SHORT_MS).kafka.responses == []
    scene.check(scene.one, NONE, (0, 9, [RELEASE]))
    answers = scene.one.fetch(forget=[scene.place], max_wait_ms=SHORT_MS)
    assert answers.kafka.responses == []
    scene.one.fetch(forget=[scene.place, (NOWHERE, 0), (scene.topic, 7)], max_wait_ms=SHORT_MS)
    assert scene.one.fetch(max_wait_ms=SHORT_MS).kafka.responses == []
    # Named and forgotten at once.
    answers = scene.one.fetch([scene.place], forget=[scene.place], max_wait_ms=SHORT_MS)
    assert acquired(answers.kafka) == []
    assert scene.fetch(scene.one) == [0, 9, 2]


def test_an_acknowledgement_adds_its_partition(scene: Scene) -> None:
    assert scene.fetch(scene.two, max_records=3, share_acquire_mode=1) == [0, 2, 1]
    scene.one.fetch(max_records=0)
    accept = {scene.place: [(3, 3, [ACCEPT])]}
    answers = scene.one.fetch(acks=accept, max_wait_ms=SHORT_MS, max_records=0)
    assert errors(answers.kafka) == [NONE, INVALID_STATE]
    assert acquired(scene.one.fetch().kafka) == [(0, 3, 9, 1)]


def test_a_session_that_is_replaced_keeps_its_locks(scene: Scene) -> None:
    assert scene.fetch(scene.one, max_records=4, share_acquire_mode=1) == [0, 3, 1]
    answers = scene.one.fetch([scene.place], epoch=0)
    assert acquired(answers.kafka) == [(0, 4, 9, 1)]
    scene.check(scene.one, NONE, (0, 9, [ACCEPT]))


def test_what_a_close_releases(scene: Scene) -> None:
    assert scene.fetch(scene.one) == [0, 9, 1]
    answers = scene.one.acknowledge({scene.place: [(2, 3, [ACCEPT])]}, epoch=CLOSE)
    assert errors(answers.kafka) == [NONE]
    scene.pair.settle()
    assert scene.fetch(scene.two) == [0, 1, 2, 4, 9, 2]
    answers = scene.two.fetch(epoch=CLOSE, acks={scene.place: [(0, 1, [ACCEPT])]})
    assert acquired(answers.kafka) == []
    scene.pair.settle()
    assert scene.fetch(scene.one) == [4, 9, 3]


def test_a_close_whose_acknowledgements_fail(scene: Scene) -> None:
    assert scene.fetch(scene.one) == [0, 9, 1]
    answers = scene.one.acknowledge({scene.place: [(5, 50, [ACCEPT])]}, epoch=CLOSE)
    assert errors(answers.kafka) == [INVALID_REQUEST]
    scene.pair.settle()
    assert scene.fetch(scene.two) == [0, 9, 2]
    answers = scene.two.fetch(epoch=CLOSE, acks={scene.place: [(5, 50, [ACCEPT])]})
    assert errors(answers.kafka) == [NONE, INVALID_REQUEST]
    scene.pair.settle()
    assert scene.fetch(scene.one) == [0, 9, 3]


def test_a_forgotten_partition_keeps_its_locks(pair: Pair) -> None:
    """A close does not release them; they can be acknowledged."""
    scene = Scene(pair, 10)
    assert scene.fetch(scene.one, max_records=3, share_acquire_mode=1) == [0, 2, 1]
    scene.one.fetch(forget=[scene.place], max_wait_ms=SHORT_MS)
    scene.check(scene.one, NONE, (0, 0, [ACCEPT]))
    scene.one.fetch(forget=[scene.place], max_wait_ms=SHORT_MS)
    assert scene.one.close().kafka.error_code == NONE
    assert scene.fetch(scene.two) == [3, 9, 1]
    assert scene.fetch(scene.one, max_wait_ms=SHORT_MS) == []
    scene.check(scene.one, NONE, (1, 2, [ACCEPT]))


def test_the_end_of_a_connection(scene: Scene) -> None:
    """The session belongs to the connection that opened it; any may use it."""
    assert scene.fetch(scene.one) == [0, 9, 1]
    other = scene.group.session("one")
    other.epoch = scene.one.epoch
    other.acknowledge({scene.place: [(0, 0, [ACCEPT])]})
    other.line.close()
    pair = scene.pair
    pair.settle()
    scene.one.epoch = other.epoch
    scene.check(scene.one, NONE, (1, 1, [ACCEPT]))
    scene.one.line.close()
    assert scene.fetch(scene.two, max_wait_ms=2_000) == [2, 9, 2]
    answers = scene.one.fetch(epoch=scene.one.epoch)
    assert answers.kafka.error_code == NOT_FOUND


def test_the_sessions_of_a_connection(scene: Scene) -> None:
    sessions = [scene.group.session(name, scene.one.line) for name in ("first", "last")]
    for session in sessions:
        session.fetch([scene.place], max_wait_ms=SHORT_MS)
    scene.one.line.close()
    scene.pair.settle()
    for session, differs in zip(sessions, (SESSIONS_OF_A_CONNECTION, None), strict=True):
        session.line = scene.two.line
        session.fetch(max_records=0, differs=differs)


def test_membership_is_not_asked_for(scene: Scene) -> None:
    """Strangers get records, and those who have left acknowledge theirs."""
    scene.group.join("one", scene.topic)
    assert scene.fetch(scene.one, max_records=5, share_acquire_mode=1) == [0, 4, 1]
    assert scene.fetch(scene.two) == [5, 9, 1]
    scene.group.beat("one", CLOSE)
    scene.check(scene.one, NONE, (0, 4, [ACCEPT]))
    scene.check(scene.two, NONE, (5, 9, [ACCEPT]))


def test_partitions_with_errors(pair: Pair) -> None:
    """They stay in the session, and are in every answer until they are forgotten."""
    topic, deleted = (create_topic(pair) for _ in range(2))
    group = ShareGroup(pair, topic, deleted)
    places: list[Place] = [(topic, 9), (NOWHERE, 0), (deleted, 0)]
    time.sleep(UNLOCKED_S)
    with group.session() as session:
        answers = session.fetch(places, max_wait_ms=SHORT_MS)
        assert {NONE, *FAULTS} == {*errors(answers.kafka)}
        session.fetch(max_wait_ms=SHORT_MS)
        session.acknowledge({place: [(0, 0, [ACCEPT])] for place in places})
        delete_topic(pair, deleted)
        session.fetch(max_wait_ms=SHORT_MS)
        session.acknowledge({place: [(0, 0, [ACCEPT])] for place in places})
        session.fetch(forget=[(NOWHERE, 0)], max_wait_ms=SHORT_MS)
        produce(pair, topic, 3)
        # Errors are sent at once, and so are records that are there.
        answers = session.fetch([(topic, 0)])
        assert acquired(answers.kafka) == [(0, 0, 2, 1)]
        answers = session.fetch(forget=places, max_wait_ms=SHORT_MS)
        assert answers.kafka.responses == []


@pytest.mark.parametrize("group_id", ["", "no-such-share-group"])
def test_groups_without_the_partition(scene: Scene, group_id: str) -> None:
    with scene.group.session() as session:
        session.group = ShareGroup.__new__(ShareGroup)
        session.group.pair, session.group.id = scene.pair, group_id
        for _ in range(2):
            # Kafka knows it when it has looked for the state.
            answers = session.fetch([scene.place], max_wait_ms=500)
            assert errors(answers.kafka) == [ErrorCode.UNKNOWN_SERVER_ERROR, NONE]
        session.acknowledge({scene.place: [(0, 0, [ACCEPT])]})


def test_the_number_of_sessions_is_limited(pair: Pair) -> None:
    group = ShareGroup(pair)
    most = int(TWIN_SETTINGS["group.share.max.share.sessions"])
    sessions: list[Session] = []
    refused = False
    while not refused:
        sessions.append(group.session(f"m{len(sessions)}"))
        answers = sessions[-1].peek(max_wait_ms=0, max_records=0)
        refused = all(answer.error_code == LIMIT_REACHED for answer in answers)
    # There may be some of other tests.
    assert most // 2 < len(sessions) <= most + 1
    for version in (1, 2):
        waiting = sessions[-1].send(max_wait_ms=400, version=version)
        assert waiting.is_parked()
        answers = waiting.answers()
        assert answers.kafka.error_code == LIMIT_REACHED
        # Replacing one's own is possible.
        assert sessions[0].fetch(epoch=0, max_wait_ms=SHORT_MS).kafka.error_code == NONE
    sessions[1].close()
    assert sessions[-1].fetch(max_wait_ms=SHORT_MS).kafka.error_code == NONE
    for session in sessions:
        session.line.close()


def test_a_parked_fetch_whose_session_has_moved_on(scene: Scene) -> None:
    assert scene.fetch(scene.one) == [0, 9, 1]
    waiting = scene.one.send(max_wait_ms=1_500)
    other = scene.group.session("one")
    scene.pair.settle()
    assert waiting.is_parked()
    other.epoch = scene.one.epoch + 1
    other.acknowledge({scene.place: [(0, 9, [ACCEPT])]})
    assert waiting.answers().kafka.error_code == INVALID_EPOCH


def test_a_parked_fetch_whose_session_ends(scene: Scene) -> None:
    assert scene.fetch(scene.two) == [0, 9, 1]
    waiting = scene.one.send([scene.place], max_wait_ms=1_000)
    other = scene.group.session("one")
    assert waiting.is_parked()
    other.close()
    waiting.answers(differs=ENDED_WHILE_WAITING)


def test_of_two_lists_of_acknowledgements(scene: Scene) -> None:
    assert scene.fetch(scene.one) == [0, 9, 1]
    request = scene.one.acknowledge_request({scene.place: [(0, 4, [ACCEPT])]})
    more = scene.one.acknowledge_request({scene.place: [(5, 9, [ACCEPT])]})
    request.topics[0].partitions += more.topics[0].partitions
    scene.pair.ask(request, 2)
    scene.one.epoch += 1
    scene.acknowledge(scene.one, (5, 9, [RENEW]), is_renew_ack=True, differs=ACKNOWLEDGED_TWICE)
    scene.check(scene.one, NONE, (0, 4, [ACCEPT]))
