"""Producer ids come from blocks, and never twice."""

from kohort.broker.topics.producer_ids import BLOCK_SIZE, ProducerIds
from tests.support.records.storage_tools import memory_store


def test_ids_are_given_once_also_across_a_restart() -> None:
    store = memory_store()
    first = ProducerIds(store.allocate_producer_ids)
    given = [first.next() for _ in range(BLOCK_SIZE + 2)]
    again = ProducerIds(store.allocate_producer_ids)
    given += [again.next(), again.next()]
    store.close()
    assert len(set(given)) == len(given)


def test_only_one_id_in_a_block_costs_a_write() -> None:
    blocks: list[int] = []

    def allocate(count: int) -> range:
        blocks.append(count)
        return range(count * (len(blocks) - 1), count * len(blocks))

    ids = ProducerIds(allocate)
    for _ in range(BLOCK_SIZE):
        ids.next()
    assert blocks == [BLOCK_SIZE]
    assert ids.next() == BLOCK_SIZE
