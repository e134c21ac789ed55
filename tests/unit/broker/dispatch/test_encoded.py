"""Answers that are kept: never other than what would be found out again."""

from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kohort.broker.core.security.session import UNKNOWN
from kohort.broker.dispatch.context import BrokerServices, RequestContext
from kohort.broker.dispatch.encoded import KEPT_MAX, KEPT_MAX_BYTES, EncodedResponse, TopicAnswers
from kohort.broker.handlers.metadata import TOPICS_REMEMBERED_MAX, metadata
from kohort.broker.network.service import ConnectionInfo
from kohort.broker.topics.manager import TopicManager
from kohort.protocol.codec import codec
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.framing import RequestHeader
from kohort.testing.inline_executor import InlineExecutor
from kohort.testing.simulated_filesystem import SimulatedFileSystem
from tests.support import messages as m
from tests.support.brokers.running_topics import context, running_topics
from tests.support.records.storage_tools import memory_store

VERSION = 13


class Asker:
    """Somebody who asks one broker again and again."""

    def __init__(self, topics: TopicManager) -> None:
        self.topics = topics
        self.services: BrokerServices = context(topics, m.MetadataRequest(topics=None)).broker

    def answer(self, request: m.MetadataRequest, version: int = VERSION, listener: str = "") -> Any:  # noqa: ANN401
        """What the handler returns."""
        connection = ConnectionInfo("/127.0.0.1", session=UNKNOWN._replace(listener=listener))
        return metadata(
            RequestContext(RequestHeader(3, version, 7, "c"), connection, self.services), request
        )

    def ask(
        self,
        *names: str | None,
        ids: tuple[bytes, ...] = (),
        **more: Any,  # noqa: ANN401
    ) -> m.MetadataResponse:
        """The answer as a client reads it."""
        version = more.pop("version", VERSION)
        return read(self.answer(about(*names, ids=ids), version, **more), version)

    @property
    def kept_count(self) -> int:
        return len(self.services.topic_answers)


def about(*names: str | None, ids: tuple[bytes, ...] = ()) -> m.MetadataRequest:
    topics = [m.MetadataRequestTopic(name=name) for name in names]
    topics += [m.MetadataRequestTopic(name=None, topic_id=topic_id) for topic_id in ids]
    return m.MetadataRequest(topics=topics, allow_auto_topic_creation=False)


def read(
    answer: m.MetadataResponse | EncodedResponse, version: int = VERSION
) -> m.MetadataResponse:
    response = codec(m.MetadataResponse, version)
    body = answer.body if isinstance(answer, EncodedResponse) else response.encode(answer)
    return response.decode(body)[0]


async def test_who_asks_the_same_gets_the_same_bytes(tmp_path: Path) -> None:
    async with running_topics(tmp_path) as topics:
        await topics.changes.create_topic("orders", partition_count=3)
        asker = Asker(topics)
        first = asker.answer(about("orders"))
        assert isinstance(first, EncodedResponse)
        assert asker.answer(about("orders")) is first
        assert [len(topic.partitions) for topic in read(first).topics] == [3]


async def test_a_topic_that_goes_is_not_told_of_any_more(tmp_path: Path) -> None:
    async with running_topics(tmp_path) as topics:
        topic = await topics.changes.create_topic("orders", partition_count=1)
        asker = Asker(topics)
        for _ in range(2):
            assert asker.ask("orders").topics[0].topic_id == topic.topic_id
            assert asker.ask(ids=(topic.topic_id,)).topics[0].name == "orders"
        assert await topics.changes.delete_topics([topic]) == [None]
        assert asker.ask("orders").topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        told = asker.ask(ids=(topic.topic_id,)).topics[0]
        assert told.error_code == ErrorCode.UNKNOWN_TOPIC_ID
        assert asker.kept_count == 0
        again = await topics.changes.create_topic("orders", partition_count=1)
        assert asker.ask("orders").topics[0].topic_id == again.topic_id != topic.topic_id


async def test_what_the_answer_depends_on_beside_the_topics_is_part_of_the_question(
    tmp_path: Path,
) -> None:
    async with running_topics(tmp_path) as topics:
        await topics.changes.create_topic("orders", partition_count=1)
        asker = Asker(topics)
        asker.services.advertised_by_listener["INSIDE"] = ("inside.example", 9_999)
        for _ in range(2):
            for version in range(14):
                told = asker.ask("orders", version=version)
                assert told.topics[0].partitions[0].leader_epoch == (0 if version >= 7 else -1)
            assert asker.ask("orders").brokers[0].host == "broker.example"
            assert asker.ask("orders", listener="INSIDE").brokers[0].host == "inside.example"
            request = about("orders")
            request.include_topic_authorized_operations = True
            assert read(asker.answer(request)).topics[0].topic_authorized_operations > 0
            assert asker.ask("orders").topics[0].topic_authorized_operations < 0


async def test_what_is_kept_is_bounded(tmp_path: Path) -> None:
    async with running_topics(tmp_path) as topics:
        topic = await topics.changes.create_topic("orders", partition_count=1)
        asker = Asker(topics)
        for count in range(1, TOPICS_REMEMBERED_MAX + 10):
            asker.ask(*["orders"] * count)
        assert asker.kept_count == TOPICS_REMEMBERED_MAX
        for count in range(1, TOPICS_REMEMBERED_MAX + 10):
            asker.ask(*["orders"] * count, version=11)
            asker.ask(*["orders"] * count, version=10)
        assert asker.kept_count == KEPT_MAX
        answers = TopicAnswers()
        answers.keep("large", b"x" * (KEPT_MAX_BYTES + 1), [topic])
        assert len(answers) == 0


async def test_a_name_beside_an_id_is_not_remembered(tmp_path: Path) -> None:
    async with running_topics(tmp_path) as topics:
        topic = await topics.changes.create_topic("orders", partition_count=1)
        asker = Asker(topics)
        answers = set()
        for length in range(20):
            named = m.MetadataRequestTopic(name="x" * length, topic_id=topic.topic_id)
            answers.add(asker.answer(m.MetadataRequest(topics=[named])))
        assert len(answers) == asker.kept_count == 1


@given(
    st.lists(
        st.tuples(
            st.sampled_from(("create", "delete", "extend", "fail", "ask")),
            st.sampled_from("ab"),
            st.sampled_from("ab"),
        ),
        min_size=5,
        max_size=30,
    )
)
@settings(deadline=None, suppress_health_check=list(HealthCheck))
async def test_an_answer_is_always_what_would_be_found_out_again(
    steps: list[tuple[str, str, str]],
) -> None:
    store = memory_store()
    async with running_topics(
        Path("/data"), files=SimulatedFileSystem(), store=store, executor=InlineExecutor()
    ) as topics:
        asker = Asker(topics)
        for what, name, other in steps:
            topic = topics.get(name)
            if what == "create" and topic is None:
                await topics.changes.create_topic(name, partition_count=1)
            elif what == "delete" and topic is not None:
                assert await topics.changes.delete_topics([topic]) == [None]
            elif what == "extend" and topic is not None:
                await topics.changes.create_partitions(topic, len(topic.partitions) + 1)
            elif what == "fail" and topic is not None:
                topic.partitions[0].failure = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
            ids = tuple(one.topic_id for one in topics.all())
            for asked in ((name,), (name, other)):
                assert asker.ask(*asked) == Asker(topics).ask(*asked)
            assert asker.ask(ids=ids) == Asker(topics).ask(ids=ids)
