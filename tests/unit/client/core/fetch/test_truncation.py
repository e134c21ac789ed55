import pytest

from kohort.client.core.errors import LogTruncatedError
from kohort.client.core.fetch.positions import Positions
from kohort.client.core.fetch.truncation import EpochEnd, EpochQuestion, LeaderChecks
from kohort.client.core.offsets import EARLIEST, LATEST, OffsetAndMetadata
from kohort.client.core.partitions import TopicPartition
from kohort.client.core.topics import Leader

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
OLD, NEW = Leader(1, 5), Leader(2, 6)


class Scene:
    """A position at offset 20 of A, read from the leader of epoch 5."""

    def __init__(self, leader: Leader = OLD) -> None:
        self.positions = Positions()
        self.positions.set_assigned([A])
        self.positions.seek(A, 10, 5)
        self.checks = LeaderChecks(self.positions)
        self.look(leader)
        self.positions.advance(A, 20, 5)

    def look(self, leader: Leader | None) -> bool:
        return self.checks.look(lambda _: leader)

    @property
    def doubt(self) -> EpochQuestion:
        (doubt,) = self.checks.doubts().values()
        return doubt

    def is_readable(self) -> bool:
        return self.positions.state(A).is_readable


@pytest.fixture(name="scene")
def make_scene() -> Scene:
    return Scene()


def test_the_leader_that_a_position_was_read_from_is_not_asked(scene: Scene) -> None:
    assert not scene.look(OLD)
    assert scene.checks.doubts() == {}
    assert scene.is_readable()


def test_a_new_leader_is_asked_before_anything_is_read_from_it(scene: Scene) -> None:
    fence = scene.positions.state(A).fence
    assert scene.look(NEW)
    assert not scene.is_readable()
    assert scene.doubt[1:] == (20, 5, NEW)
    assert not scene.positions.has_fence(A, fence), "what was fetched ahead may be gone as well"
    assert not scene.look(NEW), "once"
    assert scene.checks.answered(A, scene.doubt, EpochEnd(5, 20), LATEST) is None
    assert scene.is_readable()
    assert scene.positions.position(A) == 20
    assert not scene.look(NEW)


def test_a_leader_that_was_elected_again_is_a_new_one(scene: Scene) -> None:
    assert scene.look(Leader(1, 6))


@pytest.mark.parametrize("policy", [EARLIEST, LATEST])
def test_where_the_logs_part_is_gone_back_to_and_looked_at_again(scene: Scene, policy: int) -> None:
    scene.look(NEW)
    assert scene.checks.answered(A, scene.doubt, EpochEnd(3, 14), policy) is None
    assert scene.positions.position(A) == 14
    assert scene.look(NEW), "epoch 3 may have ended earlier there as well"
    assert scene.doubt[1:3] == (14, 3)
    assert scene.checks.answered(A, scene.doubt, EpochEnd(3, 14), policy) is None
    assert scene.is_readable()
    assert scene.positions.consumed() == {A: OffsetAndMetadata(14, "", 3)}


def test_a_log_is_truncated_only_if_it_ends_before_the_position() -> None:
    scene = Scene()
    scene.look(NEW)
    error = scene.checks.answered(A, scene.doubt, EpochEnd(5, 19), None)
    assert isinstance(error, LogTruncatedError)
    assert error.parted == OffsetAndMetadata(19, "", 5)
    assert scene.checks.answered(A, scene.doubt, EpochEnd(5, 19), LATEST) is None
    assert scene.positions.position(A) == 19
    scene = Scene()
    scene.look(NEW)
    assert scene.checks.answered(A, scene.doubt, EpochEnd(5, 20), None) is None
    assert scene.is_readable()
    assert scene.positions.position(A) == 20


@pytest.mark.parametrize("policy", [EARLIEST, LATEST])
def test_a_leader_that_knows_nothing_so_old_leaves_it_to_the_policy(policy: int) -> None:
    scene = Scene()
    scene.look(NEW)
    assert scene.checks.answered(A, scene.doubt, EpochEnd(-1, -1), policy) is None
    assert scene.positions.awaiting_reset() == {A: policy}


@pytest.mark.parametrize(
    ("end", "parted"),
    [(EpochEnd(5, 14), OffsetAndMetadata(14, "", 5)), (EpochEnd(-1, -1), None)],
)
def test_without_a_policy_it_is_an_error_until_somebody_seeks(
    end: EpochEnd, parted: OffsetAndMetadata | None
) -> None:
    scene = Scene()
    scene.look(NEW)
    error = scene.checks.answered(A, scene.doubt, end, None)
    assert isinstance(error, LogTruncatedError)
    assert (error.partition, error.offset, error.parted) == (A, 20, parted)
    assert not scene.is_readable()
    assert scene.doubt[1:] == (20, 5, NEW)
    scene.positions.seek(A, 14)
    assert not scene.look(NEW)
    assert scene.is_readable()


def test_an_answer_that_is_late_changes_nothing(scene: Scene) -> None:
    scene.look(NEW)
    doubt = scene.doubt
    scene.positions.seek(A, 3)
    assert scene.checks.answered(A, doubt, EpochEnd(-1, -1), None) is None
    assert scene.positions.position(A) == 3


def test_another_leader_meanwhile_is_asked_again(scene: Scene) -> None:
    scene.look(NEW)
    late = scene.doubt
    assert scene.look(Leader(1, 7))
    assert scene.checks.answered(A, late, EpochEnd(5, 20), LATEST) is None
    assert not scene.is_readable()
    assert scene.doubt.leader == Leader(1, 7)


def test_a_leader_older_than_the_last_record_is_old_metadata_and_not_believed(scene: Scene) -> None:
    """It would say that there is no such epoch, and all would be read again, or passed over."""
    assert not scene.look(Leader(3, 4))
    assert scene.checks.doubts() == {}


def test_positions_without_an_epoch_cannot_be_checked(scene: Scene) -> None:
    scene.positions.seek(A, 7)
    assert not scene.look(NEW)
    assert scene.is_readable()


def test_a_committed_position_is_checked_if_its_leader_is_not_the_present_one(scene: Scene) -> None:
    scene.positions.set_assigned([A, B])
    scene.positions.committed_found(B, OffsetAndMetadata(8, "", 2), None)
    assert scene.look(OLD)
    assert {one: doubt[1:3] for one, doubt in scene.checks.doubts().items()} == {B: (8, 2)}
    assert scene.is_readable()


def test_a_broker_that_cannot_be_asked_is_believed(scene: Scene) -> None:
    scene.look(NEW)
    scene.checks.believed(A, scene.doubt)
    assert scene.is_readable()


def test_without_a_leader_there_is_no_broker_to_ask(scene: Scene) -> None:
    assert not scene.look(None)
    scene.look(NEW)
    scene.look(None)
    assert scene.checks.doubts() == {}
    assert scene.look(NEW)
    assert scene.doubt.leader == NEW


def test_what_goes_away_is_not_asked_about(scene: Scene) -> None:
    scene.look(NEW)
    scene.positions.set_assigned([])
    assert scene.checks.doubts() == {}
    assert not scene.look(NEW)
