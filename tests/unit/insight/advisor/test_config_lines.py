"""What is to be set, as lines for each client library."""

from dataclasses import replace

import pytest

from kohort.client.config import config_from
from kohort.client.core.group.assignors.assignor import RebalanceProtocol, common_mode
from kohort.insight.advisor.config_lines import FIRST, PRESENT, SECOND, config_lines
from kohort.insight.advisor.setting import CONSUMER_DEFAULTS, Setting

PACKAGE = "org.apache.kafka.clients.consumer"
COOPERATIVE = f"{PACKAGE}.CooperativeStickyAssignor"
EAGER = Setting(static=False)


@pytest.mark.parametrize(
    ("assignor", "called"),
    [
        ("range", f"{PACKAGE}.RangeAssignor"),
        ("roundrobin", f"{PACKAGE}.RoundRobinAssignor"),
        ("sticky", f"{PACKAGE}.StickyAssignor"),
        (None, PRESENT),
        # The name of a member's own assignor is not that of its class, and may be any text.
        ("mine\nsession.timeout.ms=1", PRESENT),
    ],
)
def test_java_becomes_cooperative_in_two_rolling_restarts(
    assignor: str | None, called: str
) -> None:
    one = replace(EAGER, cooperative=True, session_timeout_ms=30_000)
    assert config_lines(EAGER, one, assignor)["java"] == (
        FIRST,
        "session.timeout.ms=30000",
        f"partition.assignment.strategy={called},{COOPERATIVE}",
        SECOND,
        f"# partition.assignment.strategy={COOPERATIVE}",
    )


def test_each_of_the_two_steps_is_one_that_our_consumer_takes() -> None:
    lines = config_lines(EAGER, replace(EAGER, cooperative=True), "range")["kohort"]
    place = lines.index(SECOND)
    modes = []
    # The second step is a comment until it is its turn: all may be pasted at once.
    for step in (lines, [line.removeprefix("# ") for line in lines[place + 1 :]]):
        settings = eval("dict(" + "\n".join(step) + "\n)")
        modes.append(common_mode(config_from(settings).assignors()))
    assert modes == [RebalanceProtocol.EAGER, RebalanceProtocol.COOPERATIVE]


def test_the_lines_for_clients_of_the_group_come_first() -> None:
    one = replace(EAGER, session_timeout_ms=30_000)
    assert list(config_lines(EAGER, one)) == ["java", "librdkafka", "aiokafka", "kohort"]
    found = config_lines(EAGER, one, None, ("sarama", "aiokafka", "librdkafka"))
    assert list(found) == ["aiokafka", "librdkafka", "java", "kohort"]
    assert found == config_lines(EAGER, one)


def test_no_steps_where_the_assignor_stays_or_the_client_has_no_two() -> None:
    one = replace(EAGER, session_timeout_ms=30_000)
    assert config_lines(EAGER, one)["java"] == ("session.timeout.ms=30000",)
    found = config_lines(EAGER, replace(EAGER, cooperative=True), "range")
    stopped = "# all members are stopped first: eager and cooperative ones do not mix"
    assert found["librdkafka"] == (
        stopped,
        "partition.assignment.strategy=cooperative-sticky",
    )
    assert found["aiokafka"] == ("# not possible: aiokafka has no cooperative assignor",)
    back = config_lines(replace(EAGER, cooperative=True), EAGER, "cooperative-sticky")
    assert back["java"] == (stopped, f"partition.assignment.strategy={PACKAGE}.RangeAssignor")


def test_the_consumer_protocol_is_set_at_the_client_and_its_times_at_the_broker() -> None:
    one = replace(CONSUMER_DEFAULTS, heartbeat_interval_ms=500, static=False)
    lines = config_lines(EAGER, one)
    assert lines["java"][0] == "group.protocol=consumer"
    assert not any(line.startswith("heartbeat") for line in lines["java"])
    settings = eval("dict(" + "\n".join(lines["kohort"]) + "\n)")
    assert config_from(settings).group_protocol == "consumer"
    assert "group.consumer.heartbeat.interval.ms=500" in lines["broker"]
