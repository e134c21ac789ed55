"""Commits of a run: when they begin, and which offsets count as committed."""

from typing import cast

from kohort.client.core.offsets import OffsetAndMetadata
from kohort.client.core.partitions import TopicPartition
from kohort.client.core.records import ConsumerRecord
from kohort.client.core.work import Work
from kohort.client.core.work_limits import WorkLimits
from kohort.client.processing.commits import RunCommits
from kohort.client.processing.source import CommitDone, Positions, Source
from kohort.protocol.records.batch import TimestampType

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


class Scene:
    """A run with a commit interval of a second that has handled one record of each partition."""

    can_commit = True

    def __init__(self) -> None:
        self.now_s = 0.0
        self.positions = {A: OffsetAndMetadata(1), B: OffsetAndMetadata(1)}
        self.sent: list[set[TopicPartition]] = []
        self.answers: list[CommitDone] = []
        self.work = Work(WorkLimits(10, 10_000, 10))
        self.commits = RunCommits(
            self.work,
            cast("Source", self),
            interval_ms=1_000,
            clock=lambda: self.now_s,
            random=lambda: 0.5,
        )
        for partition in (A, B):
            kind = TimestampType.CREATE_TIME
            record = ConsumerRecord(*partition, 0, 0, kind, None, None, 0, 0)
            self.work.feed(partition, [record], 0)
            item = self.work.next(0)
            assert item is not None
            self.work.finish(item)

    def commit_soon(self, offsets: Positions, on_done: CommitDone) -> None:
        self.sent.append(set(offsets))
        self.answers.append(on_done)

    def pass_interval(self) -> None:
        self.now_s += 1
        self.commits.begin_if_due()


def test_a_commit_begins_when_the_interval_has_passed_and_not_before() -> None:
    scene = Scene()
    scene.now_s = 0.75
    scene.commits.begin_if_due()
    assert (scene.sent, scene.commits.due_in_s) == ([], 0.25)
    scene.now_s = 1.0
    assert scene.commits.due_in_s == 0
    scene.commits.begin_if_due()
    assert scene.sent == [{A, B}]


def test_committed_offsets_are_not_committed_again() -> None:
    scene = Scene()
    scene.pass_interval()
    scene.answers.pop()(None)
    scene.pass_interval()
    assert scene.sent == [{A, B}]


def test_a_commit_answered_after_a_partition_was_revoked_and_reassigned_does_not_count() -> None:
    """Others may have committed since, so the same offset has to be committed again."""
    scene = Scene()
    scene.pass_interval()
    scene.work.drop([A])
    scene.work.take_over([A])
    scene.answers.pop()(None)
    scene.pass_interval()
    assert A in scene.sent[-1]
    assert len(scene.sent) == 2
