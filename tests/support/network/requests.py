"""Requests that several suites send as they are."""

from kohort.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic


def fetch_request(
    topic: str,
    offset: int = 0,
    *,
    partition: int = 0,
    max_wait_ms: int = 0,
    max_bytes: int = 1 << 20,
    is_committed: bool = False,
) -> FetchRequest:
    """A Fetch of one partition without a session. The answer waits for any byte, and at most
    `max_wait_ms`; it has up to `max_bytes`, but at least one batch. With `is_committed` the
    isolation level is read_committed.
    """
    wanted = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes)
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=max_bytes,
        isolation_level=int(is_committed),
        topics=[FetchTopic(topic=topic, partitions=[wanted])],
    )
