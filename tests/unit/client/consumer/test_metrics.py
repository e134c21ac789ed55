import math

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from kohort.client.consumer.health import Health, HealthLimits
from kohort.client.consumer.metrics import COORDINATOR, FIGURES, ConsumerCollector
from kohort.client.core.group.actions import Join
from kohort.client.core.group.base_membership import MemberState
from kohort.client.core.group.identity import NO_MEMBER
from kohort.client.core.group.statistics import Figures, GroupStatistics, HeartbeatStatistics
from kohort.client.core.partitions import TopicPartition
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.membership import JoinGroupRequest

LIMITS = HealthLimits(session_timeout_ms=10_000, max_poll_interval_ms=60_000)


class StillConsumer:
    """One that has had one rebalance, and stands still."""

    def __init__(self, client_id: str, lag: dict[TopicPartition, int | None]) -> None:
        self.client_id = client_id
        self.lag = lag
        self.statistics = GroupStatistics()
        join = JoinGroupRequest(
            group_id="g", session_timeout_ms=1, member_id="", protocol_type="", protocols=[]
        )
        self.statistics.begun(Join(NO_MEMBER, join), "started", 0)
        self.statistics.sync_answered(ErrorCode.NONE, 250)

    def health(self) -> Health:
        return Health(
            client_id=self.client_id,
            member_state=MemberState.STABLE,
            generation=4,
            last_poll_seconds_ago=1.5,
            lag=self.lag,
            limits=LIMITS,
        )

    def metrics(self) -> Figures:
        figures = self.statistics.figures(1_250) | HeartbeatStatistics().figures(1_250)
        return {**figures, "assigned-partitions": len(self.lag)}


def scraped(collector: ConsumerCollector) -> dict[tuple[str, ...], float]:
    """Values by name and labels (in the order of their names), as Prometheus reads them."""
    registry = CollectorRegistry()
    registry.register(collector)
    text = generate_latest(registry).decode()
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_names_are_those_that_the_jmx_exporter_gives_to_javas() -> None:
    values = scraped(ConsumerCollector(StillConsumer("c1", {})))
    assert values["kafka_consumer_consumer_coordinator_metrics_rebalance_total", "c1"] == 1
    assert values[f"{COORDINATOR}rebalance_latency_max", "c1"] == 250
    assert values[f"{COORDINATOR}last_rebalance_seconds_ago", "c1"] == 1
    assert values[f"{COORDINATOR}last_heartbeat_seconds_ago", "c1"] == -1
    assert math.isnan(values[f"{COORDINATOR}join_time_avg", "c1"])
    assert values["kafka_consumer_consumer_metrics_last_poll_seconds_ago", "c1"] == 1.5


def test_every_figure_that_there_is_is_exposed() -> None:
    consumer = StillConsumer("c1", {})
    assert {figure.name for figure in FIGURES} == set(consumer.metrics())
    values = scraped(ConsumerCollector(consumer))
    for figure in FIGURES:
        assert (COORDINATOR + figure.name.replace("-", "_"), "c1") in values


def test_consumers_are_told_apart_by_their_client_id() -> None:
    one, two = StillConsumer("c1", {}), StillConsumer("c2", {TopicPartition("t", 0): 3})
    collector = ConsumerCollector(one)
    collector.add(two)
    values = scraped(collector)
    assert values[f"{COORDINATOR}assigned_partitions", "c1"] == 0
    assert values[f"{COORDINATOR}assigned_partitions", "c2"] == 1
    collector.remove(one)
    assert {labels[1] for labels in scraped(collector)} == {"c2"}


def test_lag_is_told_by_partition_and_at_its_highest() -> None:
    lag = {TopicPartition("t", 0): 3, TopicPartition("t", 1): 9, TopicPartition("u", 0): None}
    name = "kafka_consumer_consumer_fetch_manager_metrics_records_lag"
    values = scraped(ConsumerCollector(StillConsumer("c1", lag)))
    assert values[name, "c1", "0", "t"] == 3
    assert values[name, "c1", "1", "t"] == 9
    assert (name, "c1", "0", "u") not in values
    assert values[f"{name}_max", "c1"] == 9
    values = scraped(ConsumerCollector(StillConsumer("c1", lag), partitions=False))
    assert not [labels for labels in values if labels[0] == name]
    assert values[f"{name}_max", "c1"] == 9


def test_states_and_health_are_told_under_names_of_our_own() -> None:
    values = scraped(ConsumerCollector(StillConsumer("c1", {})))
    assert values["kohort_consumer_healthy", "c1"] == 1
    assert values["kohort_consumer_generation", "c1"] == 4
    assert values["kohort_consumer_member_state", "c1", "stable"] == 1
    assert values["kohort_consumer_member_state", "c1", "unjoined"] == 0
    assert values["kohort_consumer_rebalance_phase", "c1", "none"] == 1
