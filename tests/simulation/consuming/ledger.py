"""What is true of all consumers together, whatever happens: checked at each record and commit."""

from collections.abc import Collection

from kohort.client.core.partitions import TopicPartition
from kohort.client.core.records import AnyRecord
from tests.simulation.consuming.group_host import Author
from tests.simulation.consuming.records import PARTITIONS


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
        self._asked: dict[int, dict[tuple[int, int], set[Author]]] = {}
        """By process, for those that commit themselves; then by partition and offset."""

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

    def ask(self, author: Author, partition: int, offset: int) -> None:
        """An application commits a position, and is `author` in that moment."""
        asked = self._asked.setdefault(author.process, {})
        asked.setdefault((partition, offset), set()).add(author)

    def commit(self, author: Author, partition: int, offset: int, holds: Collection[int]) -> None:
        """The coordinator has taken it. `holds`: what this member may commit for."""
        self.commits += 1
        process = author.process
        if process in self._asked:
            asked = self._asked[process].get((partition, offset), set())
            assert author in asked, (
                f"{offset} of partition {partition} committed as {author}, and asked for as {asked}"
            )
        assert partition in holds, (
            f"{author} committed {offset} of partition {partition}, and holds {sorted(holds)}"
        )
        assert offset <= self.processed[partition], (
            f"process {process} committed {offset} of partition {partition}, of which records are"
            f" processed below {self.processed[partition]}"
        )
        other, before = self._authors[partition], self.committed[partition]
        assert offset >= before or other == process, (
            f"process {process} committed {offset} of partition {partition} behind {before} of"
            f" process {other}"
        )
        self._authors[partition], self.committed[partition] = process, offset
