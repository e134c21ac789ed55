"""A transactional producer of either flow, that says exactly what it means to.

The old flow (KIP-98) names partitions before it writes to them; with the new one (KIP-890) the
broker takes them in, and the end of each transaction gives the next epoch. In the old one a request
that was lost on its way could arrive in the midst of the next transaction, so that a producer whose
answers were lost asks for a new epoch first (KIP-360), as clients do.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from kohort.protocol.records.builder import encode_batch
from kohort.protocol.records.record import Record
from tests.histories.links import CodeOf, Link, Links
from tests.histories.logs import place_of
from tests.support import messages as m

_ACKS_ALL: Final = -1


class Flow(NamedTuple):
    """The versions that a producer speaks."""

    produce: int
    add: int
    """AddPartitionsToTxn and AddOffsetsToTxn; unused where the broker does it."""
    commit_offsets: int
    end: int
    init: int = 4

    @property
    def is_new(self) -> bool:
        """KIP-890."""
        return self.end >= 5


OLD: Final = Flow(produce=9, add=3, commit_offsets=3, end=3)
LATER: Final = Flow(produce=11, add=3, commit_offsets=4, end=4)
"""With the errors of KIP-890's first part."""
NEW: Final = Flow(produce=12, add=-1, commit_offsets=5, end=5, init=5)


class Producer:
    """One life of a transactional id: from its epoch to the next owner's."""

    def __init__(self, links: Links, transactional_id: str, flow: Flow, *, timeout_ms: int) -> None:
        """Ends what the last owner has left open. Raises RefusedError, LostError."""
        self.transactional_id = transactional_id
        self._flow = flow
        self._timeout_ms = timeout_ms
        self._link = Link(links)
        self._sequences: dict[int, int] = {}
        """By log: of the next record."""
        self._added: set[int] = set()
        self._is_doubtful = False
        """An answer was lost since the epoch began."""
        self._producer_id = self._epoch = -1
        self._take_epoch()

    def close(self) -> None:
        """Leaves open what is open."""
        self._link.close()

    def begin(self) -> None:
        """Raises RefusedError, LostError; nothing was asked of the transaction then."""
        self._added.clear()
        if self._is_doubtful and not self._flow.is_new:
            self._take_epoch()

    def send(self, values: Mapping[int, Sequence[Record]]) -> dict[int, int]:
        """Append by log; the offset of each log's first record. Raises RefusedError, LostError."""
        if not self._flow.is_new:
            self._add(values.keys() - self._added)
        topics: dict[str, list[m.PartitionProduceData]] = {}
        for log, records in values.items():
            topic, index = place_of(log)
            batch = encode_batch(
                records,
                producer_id=self._producer_id,
                producer_epoch=self._epoch,
                base_sequence=self._sequences.get(log, 0),
                is_transactional=True,
            )
            topics.setdefault(topic, []).append(m.PartitionProduceData(index=index, records=batch))
        request = m.ProduceRequest(
            transactional_id=self.transactional_id,
            acks=_ACKS_ALL,
            timeout_ms=10_000,
            topic_data=[
                m.TopicProduceData(name=name, partition_data=data) for name, data in topics.items()
            ],
        )
        answer = self._insist(request, self._flow.produce, _code_of_produce)
        offsets = {
            (topic.name, one.index): one.base_offset
            for topic in answer.responses
            for one in topic.partition_responses
        }
        for log, records in values.items():
            self._sequences[log] = self._sequences.get(log, 0) + len(records)
        return {log: offsets[place_of(log)] for log in values}

    def send_position(self, group: str, log: int, position: int) -> None:
        """Send a position as a consumer outside any group does. Raises RefusedError, LostError."""
        topic, index = place_of(log)
        if not self._flow.is_new:
            added = m.AddOffsetsToTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self._producer_id,
                producer_epoch=self._epoch,
                group_id=group,
            )
            self._insist(added, self._flow.add, lambda answer: int(answer.error_code))
        partition = m.TxnOffsetCommitRequestPartition(
            partition_index=index, committed_offset=position, committed_metadata=""
        )
        request = m.TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            topics=[m.TxnOffsetCommitRequestTopic(name=topic, partitions=[partition])],
        )
        self._insist(
            request,
            self._flow.commit_offsets,
            lambda answer: int(answer.topics[0].partitions[0].error_code),
        )

    def end(self, *, committed: bool) -> None:
        """Raises RefusedError, LostError."""
        request = m.EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            committed=committed,
        )
        answer = self._insist(request, self._flow.end, lambda answer: int(answer.error_code))
        if self._flow.is_new:
            self._new_epoch(answer.producer_id, answer.producer_epoch)

    def _take_epoch(self) -> None:
        request = m.InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self._timeout_ms,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
        )
        answer = self._insist(request, self._flow.init, lambda answer: int(answer.error_code))
        self._new_epoch(answer.producer_id, answer.producer_epoch)

    def _new_epoch(self, producer_id: int, epoch: int) -> None:
        if (producer_id, epoch) != (self._producer_id, self._epoch):
            self._sequences.clear()
        self._producer_id, self._epoch = producer_id, epoch
        self._is_doubtful = False

    def _add(self, logs: set[int]) -> None:
        if not logs:
            return
        topics: dict[str, list[int]] = {}
        for log in logs:
            topic, index = place_of(log)
            topics.setdefault(topic, []).append(index)
        request = m.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self._producer_id,
            v3_and_below_producer_epoch=self._epoch,
            v3_and_below_topics=[
                m.AddPartitionsToTxnTopic(name=name, partitions=indexes)
                for name, indexes in topics.items()
            ],
        )
        self._insist(
            request,
            self._flow.add,
            lambda answer: max(
                one.partition_error_code
                for topic in answer.results_by_topic_v3_and_below
                for one in topic.results_by_partition
            ),
        )
        self._added |= logs

    def _insist(self, request: object, version: int, code_of: CodeOf) -> Any:  # noqa: ANN401
        answer, was_lost = self._link.insist(request, version, code_of)
        self._is_doubtful |= was_lost
        return answer


def _code_of_produce(answer: m.ProduceResponse) -> int:
    """The first error, if any."""
    codes = (one.error_code for topic in answer.responses for one in topic.partition_responses)
    return next((code for code in codes if code), 0)
