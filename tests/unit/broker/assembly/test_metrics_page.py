"""GET /metrics as a whole: formats, sharing, slices, and that everything is there."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, cast

import prometheus_client
import pytest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from kohort.broker.assembly.metrics_page import MetricsPage, scraped_broker
from kohort.broker.config import BrokerConfig
from kohort.broker.http.messages import HttpRequest, HttpResponse
from kohort.broker.metrics.broker_metrics import BrokerMetrics
from kohort.broker.metrics.catalogue import METRICS
from kohort.broker.metrics.rebalances import RebalanceMetrics
from kohort.broker.metrics.source import BrokerSource
from kohort.broker.runtime.clock import SystemClock
from kohort.broker.topics.startup_progress import StartupProgress
from kohort.groups.consumer.describe import ASSIGNMENT_EPOCH, EPOCH, UNRECONCILED
from kohort.groups.events import (
    Event,
    MemberRef,
    MemberRemoved,
    RebalanceAvoided,
    RebalanceStarted,
    RemovalReason,
    Trigger,
    TriggerKind,
)
from kohort.groups.kinds import GroupKind
from kohort.groups.requests import Now
from scripts.metrics_document import document
from tests.unit.broker.metrics.sources import (
    FakeTopics,
    Group,
    Groups,
    History,
    Log,
    Network,
    Offsets,
    Partition,
    Partitions,
    Purgatory,
    Share,
    Tasks,
    Topic,
    Topics,
    Transactions,
)

ORDERS = Topics(
    [Topic("orders", Partitions([Partition(0, 7, log=Log(lost_offsets=3), held_offsets=2)]))]
)

TRIGGER = Trigger(TriggerKind.MEMBER_ADDED)
EVENTS: list[Event] = [
    RebalanceStarted(TRIGGER, "Empty", 0, (), GroupKind.CONSUMER),
    RebalanceAvoided(TRIGGER),
    MemberRemoved(MemberRef("m", None, "c", "/127.0.0.1"), RemovalReason.LEFT),
]

GAUGES = dict.fromkeys((EPOCH, ASSIGNMENT_EPOCH, *UNRECONCILED), 1)


class Certificate(NamedTuple):
    listener: str
    expires_s: float
    reload_failures: int


class UsersFile(NamedTuple):
    reload_failures: int


MakePage = Callable[..., MetricsPage]


@pytest.fixture
async def make_page() -> AsyncIterator[MakePage]:
    executor = ThreadPoolExecutor(1)

    def make(
        topics: Any = ORDERS,  # noqa: ANN401 - stands for a TopicManager.
    ) -> MetricsPage:
        metrics = BrokerMetrics()
        rebalances = RebalanceMetrics()
        metrics.edge.request_failed("Fetch", 4, 1, 0.001)
        metrics.edge.request_rejected("bad_frame")
        metrics.edge.connection_opened()
        metrics.edge.connection_closed("client")
        metrics.edge.connection_refused("max.connections")
        metrics.edge.certificates = cast("Any", [Certificate("SSL", 2e9, 0)])
        metrics.edge.users_file = cast("Any", UsersFile(0))
        metrics.edge.authentication("SASL_SSL", "PLAIN", "succeeded")
        metrics.edge.denied["Fetch", "Topic"] = 1
        for event in EVENTS:
            rebalances.observe("readers", event, Now(0, 0))
        source = BrokerSource(
            metrics=metrics,
            topics=topics,
            groups=Groups([Group("readers", Offsets({("orders", 0): 7}), counts=GAUGES)]),
            transactions=Transactions(),
            shares=lambda: cast("Any", Share()),
            history=History(),
            rebalances=rebalances,
            purgatory=Purgatory(),
            network=Network(),
            tasks=Tasks(),
            clock=SystemClock(),
            node_id=1,
            address="localhost:9092",
            version="1.2.3",
            startup=StartupProgress(SystemClock()),
            executor=executor,
            offloaded_reads=asyncio.Semaphore(),
        )
        return MetricsPage(scraped_broker(lambda: source, BrokerConfig()), executor)

    yield make
    executor.shutdown()


async def scrape(page: MetricsPage) -> HttpResponse:
    return await page.answer(HttpRequest("GET", "/metrics", "", ""))


def text(response: HttpResponse) -> str:
    return b"".join(response.body).decode()


def families(response: HttpResponse) -> dict[str, Metric]:
    assert response.content_type == "text/plain; version=0.0.4; charset=utf-8"
    return {family.name: family for family in text_string_to_metric_families(text(response))}


def sample_names(response: HttpResponse) -> set[str]:
    return {sample.name for family in families(response).values() for sample in family.samples}


async def test_every_metric_of_the_catalogue_is_there_and_every_one_is_documented(
    make_page: MakePage,
) -> None:
    response = await scrape(make_page())
    expected = {
        f"{name}_count" if info.kind == "histogram" else name for name, info in METRICS.items()
    }
    found = sample_names(response)
    assert expected - found == set()
    types = {family.name: family.type for family in families(response).values()}
    documented = document()
    undocumented = {
        name
        for name, kind in types.items()
        if not name.startswith(("process_", "python_"))
        and f"| `{name}{'_total' if kind == 'counter' else ''}` " not in documented
    }
    assert undocumented == set()


async def test_nothing_of_the_global_registry_is_shown(make_page: MakePage) -> None:
    prometheus_client.Gauge("somebody_elses", "Of a library in the same process.")
    assert "somebody_elses" not in text(await scrape(make_page()))


async def test_those_who_ask_at_the_same_time_share_one_look(make_page: MakePage) -> None:
    looks = 0

    class CountingTopics(FakeTopics):
        def all(self) -> Iterable[Topic]:
            nonlocal looks
            looks += 1
            return super().all()

    page = make_page(CountingTopics([]))
    await scrape(page)
    answers = await asyncio.gather(*(scrape(page) for _ in range(10)))
    assert looks == 2
    assert {text(answer) for answer in answers} == {text(answers[0])}
    await scrape(page)
    assert looks == 3


async def test_one_who_gives_up_does_not_take_the_answer_from_the_others(
    make_page: MakePage,
) -> None:
    page = make_page()
    await scrape(page)
    first = asyncio.create_task(scrape(page))
    second = asyncio.create_task(scrape(page))
    await asyncio.sleep(0)
    first.cancel()
    assert "kafka_brokers 1" in text(await second)


async def test_a_look_that_fails_fails_those_who_share_it_and_not_the_next(
    make_page: MakePage,
) -> None:
    faults: list[Exception] = []

    class FaultyTopics(FakeTopics):
        def all(self) -> Iterable[Topic]:
            if faults:
                raise faults.pop()
            return super().all()

    page = make_page(FaultyTopics([]))
    await scrape(page)
    faults.append(RuntimeError("fault"))
    answers = await asyncio.gather(scrape(page), scrape(page), return_exceptions=True)
    assert [str(answer) for answer in answers] == ["fault", "fault"]
    assert "kafka_brokers 1" in text(await scrape(page))


async def test_the_loop_goes_on_turning_during_a_large_scrape(make_page: MakePage) -> None:
    partitions = Partitions(map(Partition, range(10)))
    page = make_page(Topics(Topic(f"t{number}", partitions) for number in range(300)))
    await scrape(page)
    scraping = asyncio.create_task(scrape(page))
    turns = 0
    while not scraping.done():
        await asyncio.sleep(0)
        turns += 1
    # 30,000 lines in slices of a millisecond, whatever the machine makes of one.
    assert turns > 10
    assert text(await scraping).count("\n") > 27_000


async def test_how_many_were_folded_is_told(make_page: MakePage) -> None:
    large, small = Partitions(map(Partition, range(10_001))), Partitions([Partition(0)])
    topics = Topics([Topic("large", large), Topic("small", small)])
    response = await scrape(make_page(topics))
    folded = families(response)["kohort_metrics_folded"].samples
    assert {sample.labels["kind"]: sample.value for sample in folded} == {
        "topics": 1,
        "partitions": 10_001,
        "groups": 0,
    }


async def test_closing_gives_up_what_is_under_way(make_page: MakePage) -> None:
    page = make_page()
    await scrape(page)
    scraping = asyncio.create_task(scrape(page))
    await asyncio.sleep(0)
    await page.close()
    with pytest.raises(asyncio.CancelledError):
        await scraping
