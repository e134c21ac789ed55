"""What is true of all consumers together, whatever happens: checked at each record and commit."""

from __future__ import annotations

from collections.abc import Collection

from kohort.client.core.partitions import TopicPartition
from kohort.client.core.records import AnyRecord
from tests.simulation.consuming.brokers import PARTITIONS


class Ledger:
    """Which records were processed, and by whom positions were committed."""

    def __init__(self) -> None:
        self.processed = [0] * PARTITIONS
        """By partition: every record below was processed by somebody."""
        self.committed = [0] * PARTITIONS
        self.records = 0
        self.commits = 0
        self._ahead: list[set[int]] = [set() for _ in range(PARTITIONS)]
        self._authors = [0] * PARTITIONS
        """Processes whose commits stand."""

    def handed_out(
        self, process: int, records: Collection[AnyRecord], held: Collection[TopicPartition]
    ) -> None:
        """A consumer has returned these; `held`: what its listener was told it has, to the end."""
        for record in records:
            self.records += 1
            partition = TopicPartition(record.topic, record.partition)
            assert partition in held, (
                f"process {process} was given {record.offset} of partition {record.partition},"
                f" and holds {sorted(one.partition for one in held)}"
            )
            assert record.value == b"%d" % record.offset

    def process(self, record: AnyRecord) -> None:
        """The application is done with it."""
        ahead = self._ahead[record.partition]
        ahead.add(record.offset)
        upto = self.processed[record.partition]
        while upto in ahead:
            ahead.remove(upto)
            upto += 1
        self.processed[record.partition] = upto
        ahead.difference_update([one for one in ahead if one < upto])

    def commit(self, process: int, partition: int, offset: int) -> None:
        """The coordinator has taken it."""
        self.commits += 1
        assert offset <= self.processed[partition], (
            f"process {process} committed {offset} of partition {partition}, of which records are"
            f" processed below {self.processed[partition]}"
        )
        author, before = self._authors[partition], self.committed[partition]
        assert offset >= before or author == process, (
            f"process {process} committed {offset} of partition {partition} behind {before} of"
            f" process {author}"
        )
        self._authors[partition], self.committed[partition] = process, offset
