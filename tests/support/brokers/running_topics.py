"""Topics that run on their own: a data directory, its manager, and handlers in front of it."""

import inspect
from collections.abc import AsyncIterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast
from uuid import uuid4

from kohort.broker.config import load
from kohort.broker.core.purgatory import Purgatory
from kohort.broker.dispatch.context import BrokerServices, RequestContext
from kohort.broker.dispatch.encoded import EncodedResponse
from kohort.broker.handlers import load_handlers
from kohort.broker.network.service import ConnectionInfo
from kohort.broker.runtime.clock import Clock
from kohort.broker.runtime.deferred import Deferred
from kohort.broker.runtime.slices import Slice, run
from kohort.broker.storage.filesystem import OS_FILES, FileSystem
from kohort.broker.storage.metadata.store import MetadataStore
from kohort.broker.topics.manager import TopicManager
from kohort.broker.topics.partition import Appended, Partition
from kohort.protocol.codec import Codec, codec
from kohort.protocol.framing import RequestHeader
from kohort.protocol.message import RESPONSES, schema_of
from kohort.protocol.records.batch import read_header
from kohort.protocol.records.builder import encode_batch
from kohort.protocol.records.record import Record
from kohort.testing.virtual_clock import VirtualClock

P = ParamSpec("P")
T = TypeVar("T")

NODE_ID = 1


@asynccontextmanager
async def running_topics(
    directory: Path,
    *overrides: str,
    clock: Clock | None = None,
    files: FileSystem = OS_FILES,
    store: MetadataStore | None = None,
    stop_cleanly: bool = True,
    executor: Executor | None = None,
) -> AsyncIterator[TopicManager]:
    """A started TopicManager; without ``stop_cleanly`` it ends as if the process were killed."""

    def report(doing: str, error: Exception) -> None:
        raise AssertionError(doing) from error

    executor = executor or ThreadPoolExecutor(2)
    topics = TopicManager(
        load(overrides=[f"log.dirs={directory}", *overrides]),
        clock=clock or VirtualClock(),
        purgatory=Purgatory(report=report),
        executor=executor,
        files=files,
        store=store,
        new_uuid=uuid4,
    )
    try:
        await topics.start()
        try:
            yield topics
        finally:
            if stop_cleanly:
                await topics.close()
            else:
                await topics._upkeep.close()
                topics.disk.data.store.close()
    finally:
        executor.shutdown()


def directories(root: Path, pattern: str = "*") -> list[str]:
    return sorted(path.name for path in root.glob(pattern) if path.is_dir())


def append(partition: Partition, value: bytes = b"value", key: bytes | None = None) -> Appended:
    batch = encode_batch([Record(value, key=key, timestamp=1_700_000_000_000)])
    return partition.append(batch, read_header(batch), wall_ms=1_700_000_000_000)


def aborted_in(partition: Partition, offset: int, end_offset: int) -> list[tuple[int, int]]:
    """(producer id, first offset) of the aborted transactions in a range, by their markers."""
    found = partition.log.aborted.reading(offset, end_offset).read()
    return [(one.producer_id, one.first_offset) for one in found]


def context(topics: TopicManager, request: object, version: int | None = None) -> RequestContext:
    """The surroundings of a request of this version, of the newest if none is given."""
    schema = schema_of(type(request))
    assert schema.key is not None
    services = BrokerServices(
        config=topics.settings.config,
        clock=VirtualClock(),
        purgatory=cast("Any", None),
        topics=topics,
        coordinators=cast("Any", None),
        node_id=NODE_ID,
        cluster_id=topics.cluster_id,
        advertised_host="broker.example",
        advertised_port=9092,
    )
    api_version = schema.versions.high if version is None else version
    header = RequestHeader(schema.key, api_version, correlation_id=7, client_id="test")
    return RequestContext(header, ConnectionInfo("/127.0.0.1"), services)


async def ask(topics: TopicManager, request: Any, version: int | None = None) -> Any:  # noqa: ANN401
    """The answer to a request of this version (the newest if none is given), as a client reads it.

    It is encoded and decoded, so that what does not fit the version fails here.
    """
    ctx = context(topics, request, version)
    api = load_handlers()[ctx.header.api_key]
    response: Any = api.handler(ctx, request)
    # As the dispatcher: what else can be awaited is no answer.
    if inspect.isgenerator(response):
        response = await run(cast("Any", response), Slice(ctx.broker.clock))
    if inspect.iscoroutine(response) or isinstance(response, Deferred):
        response = await response
    response_codec: Codec[Any] = codec(RESPONSES[api.key], ctx.api_version)
    is_encoded = isinstance(response, EncodedResponse)
    encoded = response.body if is_encoded else response_codec.encode(response)
    decoded, end = response_codec.decode(encoded)
    assert end == len(encoded)
    return decoded
