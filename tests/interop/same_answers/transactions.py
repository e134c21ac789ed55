"""What scripts about transactions are made of: a producer with the same id at both brokers."""

import time
from collections.abc import Callable, Collection, Mapping
from typing import Final

import pytest

from kohort.protocol.errors import ErrorCode
from kohort.protocol.message import schema_of
from kohort.protocol.messages.transactions import TopicRequest
from tests.interop.same_answers.deliberate import Difference
from tests.interop.same_answers.each import Value, each, for_broker
from tests.interop.same_answers.groups import NO_COORDINATOR, plus
from tests.interop.same_answers.pair import Answers, Pair, Side
from tests.interop.same_answers.scenes import (
    Topic,
    batch,
    fetch_request,
    fresh_name,
    produce_request,
)
from tests.support import messages as m
from tests.support.waiting import wait_until

VERSIONS: Final = {
    request: range(versions[0], versions[1] + 1)
    for request, versions in {
        "init": (0, 5),
        "add": (0, 5),
        "add_offsets": (0, 4),
        "produce": (3, 13),
        "commit_offsets": (0, 6),
        "end": (0, 5),
    }.items()
}
"""Versions of the requests that have to do with transactions, by the method that sends them."""

STRANGE: Final = 1 << 40
"""Added to a producer id, it makes an id that no producer has."""

_SEVERAL_SINCE: Final = 4
_EVENTUALLY_S: Final = 20
_SHORTLY_S: Final = 0.002
_AT_ONCE: Final = 500
_SETTLED: Final = frozenset({"", "Empty", "Ongoing", "CompleteCommit", "CompleteAbort"})
_AGAIN: Final = NO_COORDINATOR | {ErrorCode.CONCURRENT_TRANSACTIONS}


class Producer:
    """One transactional id, with the producer id and epoch that each broker gave it last."""

    def __init__(self, pair: Pair, name: str | None = None) -> None:
        self.pair = pair
        self.id = fresh_name("txn") if name is None else name
        self.pid: Value = -1
        self.epoch: Value = -1
        self.timeout_ms = 60_000

    def wait_coordinated(self) -> None:
        """Until Kafka has made the topic of the states and loaded it."""
        for side in self.pair.kafkas:
            self._wait_coordinated(side)

    def _wait_coordinated(self, side: Side) -> None:
        search = m.FindCoordinatorRequest(key=self.id, key_type=1)
        self._wait(lambda: not self.pair.line.ask_alone(side, search, 3).error_code, "its place")
        self._wait(lambda: self.look(side).error_code not in NO_COORDINATOR, "its coordinator")

    # Looking.

    def look(self, side: Side) -> Value:
        """The id as one broker describes it."""
        request = m.DescribeTransactionsRequest(transactional_ids=[self.id])
        return self.pair.line.ask_alone(side, request, 0).transaction_states[0]

    def describe(self, *, differs: Difference | None = None) -> Value:
        """Compare what DescribeTransactions shows; Kafka's view is returned."""
        request = m.DescribeTransactionsRequest(transactional_ids=[self.id])
        return self.pair.ask(request, 0, differs=differs).kafka.transaction_states[0]

    def check_state(self, state: str) -> None:
        """Both are there, and show the same."""
        found = self.describe().transaction_state
        assert found == state, f"the scene needs {state}, and Kafka is in {found}"

    def wait_state(self, state: str) -> None:
        """Until both are in it."""
        for side in self.pair.sides:
            self._wait_seen(side, {state})

    def settle(self) -> None:
        """Until no Kafka is ending a transaction: it answers before it has."""
        for side in self.pair.kafkas:
            self._wait_seen(side, _SETTLED)

    def _wait_seen(self, side: Side, states: Collection[str]) -> None:
        self._wait(lambda: self.look(side).transaction_state in states, " or ".join(sorted(states)))

    def _wait(self, is_so: Callable[[], bool], what: str) -> None:
        """Wait for what a broker does a moment after it has answered."""
        wait_until(is_so, f"{what} of {self.id}", timeout_s=_EVENTUALLY_S, pause_s=_SHORTLY_S)

    # Requests. What identifies the producer may be replaced by `pid` and `epoch`.

    def init_request(self, version: int, **changes: Value) -> m.InitProducerIdRequest:
        request = m.InitProducerIdRequest(
            transactional_id=self.id, transaction_timeout_ms=self.timeout_ms
        )
        _change(request, changes)
        return request

    def init(
        self, version: int = 5, *, differs: Difference | None = None, **changes: Value
    ) -> Answers:
        """InitProducerId, asked again of a broker that has a transaction to end before."""
        request = self.init_request(version, **changes)
        answers = self.pair.line.send(request, version).uncompared()
        answers = Answers(
            *(
                self._init_again(side, request, version, answer)
                for side, answer in zip(self.pair.sides, answers, strict=True)
            )
        )
        self.pair.compare(request, version, answers, differs)
        self.learn(answers)
        return answers

    def _init_again(
        self, side: Side, request: m.InitProducerIdRequest, version: int, answer: Value
    ) -> Value:
        # Ours answers at once, but where a marker waits behind what is being appended.
        deadline = time.monotonic() + _EVENTUALLY_S
        while answer.error_code in _AGAIN and time.monotonic() < deadline:
            time.sleep(_SHORTLY_S)
            answer = self.pair.line.ask_alone(side, request, version)
        return answer

    def learn(self, answers: Answers) -> None:
        """The producer id and epoch, of answers in which both have some."""
        if all(answer.error_code == ErrorCode.NONE for answer in answers):
            self.pid = answers.each(lambda answer: answer.producer_id)
            self.epoch = answers.each(lambda answer: answer.producer_epoch)

    def add(
        self,
        partitions: Mapping[Topic, list[int]],
        version: int = 3,
        *,
        verify_only: bool = False,
        pid: Value = None,
        epoch: Value = None,
        differs: Difference | None = None,
    ) -> Answers:
        """AddPartitionsToTxn for this id alone."""
        request = self.add_request(
            partitions, version, verify_only=verify_only, pid=pid, epoch=epoch
        )
        return self.pair.ask(request, version, differs=differs)

    def add_request(
        self,
        partitions: Mapping[Topic, list[int]],
        version: int,
        *,
        verify_only: bool = False,
        pid: Value = None,
        epoch: Value = None,
    ) -> m.AddPartitionsToTxnRequest:
        pid, epoch = self._who(pid, epoch)
        topics = [
            m.AddPartitionsToTxnTopic(name=topic.name, partitions=indexes)
            for topic, indexes in partitions.items()
        ]
        if version < _SEVERAL_SINCE:
            return m.AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.id,
                v3_and_below_producer_id=pid,
                v3_and_below_producer_epoch=epoch,
                v3_and_below_topics=topics,
            )
        transaction = m.AddPartitionsToTxnTransaction(
            transactional_id=self.id,
            producer_id=pid,
            producer_epoch=epoch,
            verify_only=verify_only,
            topics=topics,
        )
        return m.AddPartitionsToTxnRequest(transactions=[transaction])

    def add_offsets(
        self, group_id: str, version: int = 3, *, pid: Value = None, epoch: Value = None
    ) -> Answers:
        pid, epoch = self._who(pid, epoch)
        request = m.AddOffsetsToTxnRequest(
            transactional_id=self.id, producer_id=pid, producer_epoch=epoch, group_id=group_id
        )
        return self.pair.ask(request, version)

    def batch(
        self,
        sequence: Value,
        *,
        count: int = 1,
        pid: Value = None,
        epoch: Value = None,
        is_transactional: bool = True,
    ) -> Value:
        """Records for both, from each broker's producer id and epoch."""
        pid, epoch = self._who(pid, epoch)
        return each(
            *(
                batch(
                    *[b"value"] * count,
                    producer_id=for_broker(pid, name),
                    producer_epoch=for_broker(epoch, name),
                    base_sequence=for_broker(sequence, name),
                    is_transactional=is_transactional,
                )
                for name in ("kafka", "kohort")
            )
        )

    def produce(
        self,
        topic: Topic,
        records: Value,
        version: int = 9,
        *,
        transactional_id: str | None = "",
        differs: Difference | None = None,
        acks: int = -1,
    ) -> Answers:
        """To partition 0, or to those of a mapping; "" stands for the own id."""
        own = self.id if transactional_id == "" else transactional_id
        request = produce_request(topic, records, transactional_id=own, acks=acks)
        return self.pair.ask(request, version, differs=differs)

    def send(
        self,
        topic: Topic,
        sequence: Value = 0,
        version: int = 9,
        *,
        partition: int = 0,
        count: int = 1,
    ) -> Answers:
        """One batch in the transaction."""
        return self.produce(topic, {partition: self.batch(sequence, count=count)}, version)

    def commit_offsets(
        self,
        group_id: str,
        topic: Topic,
        positions: Mapping[int, int],
        version: int = 3,
        *,
        pid: Value = None,
        epoch: Value = None,
        metadata: str | None = "",
        differs: Difference | None = None,
        **changes: Value,
    ) -> Answers:
        """TxnOffsetCommit, from no particular member unless `changes` say which."""
        pid, epoch = self._who(pid, epoch)
        request = m.TxnOffsetCommitRequest(
            transactional_id=self.id,
            group_id=group_id,
            producer_id=pid,
            producer_epoch=epoch,
            topics=[commit_topic(topic, positions, metadata)],
        )
        _change(request, changes)
        return self.pair.ask(request, version, differs=differs)

    def end(
        self,
        version: int = 3,
        *,
        commit: bool = True,
        pid: Value = None,
        epoch: Value = None,
        differs: Difference | None = None,
    ) -> Answers:
        """EndTxn; then nothing is being ended."""
        request = self.end_request(commit=commit, pid=pid, epoch=epoch)
        answers = self.pair.ask(request, version, differs=differs)
        if version >= 5:
            self.learn(answers)
        self.settle()
        return answers

    def end_request(
        self, *, commit: bool, pid: Value = None, epoch: Value = None
    ) -> m.EndTxnRequest:
        pid, epoch = self._who(pid, epoch)
        return m.EndTxnRequest(
            transactional_id=self.id, producer_id=pid, producer_epoch=epoch, committed=commit
        )

    def marker(
        self,
        partitions: Mapping[Topic, list[int]],
        *,
        commit: bool = False,
        pid: Value = None,
        epoch: Value = None,
        coordinator_epoch: int = 0,
        transaction_version: int = 0,
    ) -> m.WritableTxnMarker:
        """A marker such as an operator's tool writes past the coordinator."""
        pid, epoch = self._who(pid, epoch)
        return m.WritableTxnMarker(
            producer_id=pid,
            producer_epoch=epoch,
            transaction_result=commit,
            topics=[
                m.WritableTxnMarkerTopic(name=topic.name, partition_indexes=indexes)
                for topic, indexes in partitions.items()
            ],
            coordinator_epoch=coordinator_epoch,
            transaction_version=transaction_version,
        )

    def _who(self, pid: Value, epoch: Value) -> tuple[Value, Value]:
        return self.pid if pid is None else pid, self.epoch if epoch is None else epoch

    # Scenes.

    def raise_epoch(self, epoch: int) -> None:
        """By new instances, of which only the last is compared."""
        request = self.init_request(5)
        behind = epoch - for_broker(self.epoch, "kafka") - 1
        for done in range(0, behind, _AT_ONCE):
            pending = [self.pair.line.send(request, 5) for _ in range(min(_AT_ONCE, behind - done))]
            for one in pending:
                one.uncompared()
        self.init()
        assert for_broker(self.epoch, "kafka") == epoch

    def begun(self, topic: Topic, *, partition: int = 0) -> "Producer":
        """Empty or Complete to Ongoing, with one record, as old clients do it."""
        self.add({topic: [partition]})
        self.send(topic, partition=partition)
        return self

    def off(self, by: int) -> Value:
        """An epoch that is this much beside the right one."""
        return plus(self.epoch, by)

    @property
    def strange_pid(self) -> Value:
        return plus(self.pid, STRANGE)


def commit_topic(
    topic: Topic, positions: Mapping[int, int], metadata: str | None = ""
) -> m.TxnOffsetCommitRequestTopic:
    return m.TxnOffsetCommitRequestTopic(
        name=topic.name,
        topic_id=topic.id,
        partitions=[
            m.TxnOffsetCommitRequestPartition(
                partition_index=index, committed_offset=offset, committed_metadata=metadata
            )
            for index, offset in positions.items()
        ],
    )


def write_markers(*markers: m.WritableTxnMarker) -> m.WriteTxnMarkersRequest:
    return m.WriteTxnMarkersRequest(markers=list(markers))


def describe_producers(pair: Pair, topic: Topic, *partitions: int) -> Value:
    """Compare what DescribeProducers shows; Kafka's view is returned."""
    asked = TopicRequest(name=topic.name, partition_indexes=list(partitions or (0,)))
    return pair.ask(m.DescribeProducersRequest(topics=[asked]), 0).kafka.topics[0]


def read(
    pair: Pair,
    topic: Topic,
    offsets: int | Mapping[int, int] = 0,
    version: int = 12,
    *,
    isolation_level: int = 1,
) -> Answers:
    """Fetch all that there is from these offsets on, and compare.

    Kafka tells now and then of aborted transactions that begin behind the last stable offset; see
    EXACTLY_ABORTED.
    """
    request = fetch_request(
        topic,
        offsets,
        isolation_level=isolation_level,
        max_bytes=1 << 28,
        partition_max_bytes=1 << 26,
    )
    answers = pair.line.send(request, version).uncompared()
    for answer in answers if pair.are_both_kafka else answers[:1]:
        _leave_out_undecided(answer)
    pair.compare(request, version, answers)
    return answers


def _leave_out_undecided(answer: Value) -> None:
    for topic in answer.responses:
        for partition in topic.partitions:
            if partition.aborted_transactions:
                partition.aborted_transactions = [
                    one
                    for one in partition.aborted_transactions
                    if one.first_offset < partition.last_stable_offset
                ]


def some_versions(of: str, *short: int) -> pytest.MarkDecorator:
    """All versions, of which those in `short` show the differences between them."""
    return pytest.mark.parametrize(
        "version",
        [
            pytest.param(version, marks=() if version in short else pytest.mark.long)
            for version in VERSIONS[of]
        ],
    )


def producer(pair: Pair) -> Producer:
    """A new id that has its producer id: Empty."""
    made = Producer(pair)
    made.wait_coordinated()
    made.init()
    return made


def commit_and_abort(pair: Pair, topic: Topic) -> None:
    """Commit a transaction of two records in partition 0, then abort one."""
    some = producer(pair)
    for number, is_committed in enumerate((True, False)):
        some.add({topic: [0]})
        some.send(topic, 2 * number, count=2)
        some.end(commit=is_committed)


def _change(request: Value, changes: Mapping[str, Value]) -> None:
    known = {field.name for field in schema_of(type(request)).fields}
    assert changes.keys() <= known, changes
    for name, value in changes.items():
        setattr(request, name, value)
