"""Access rules that are changed 100 times a second, while a broker is asked all that it can answer.

An administrator creates and removes a rule, one after the other; what it is about is asked for
after each change, by the client that the rule is for. Others keep the broker's loop busy without a
pause, with questions that it has to decide among 100,000 rules.
"""

import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Final

from benchmarks.brokers import RunningBroker
from benchmarks.generator import generate
from benchmarks.generator.denied import SOURCE
from benchmarks.harness import Bench, Measured, Row
from benchmarks.secured import store_properties
from kohort.admin.access import creation_of, filter_of
from kohort.broker.core.security.acls import (
    CLUSTER_NAME,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    Rule,
)
from kohort.broker.security.rules import property_of
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from kohort.protocol.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from kohort.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from tests.support.network.wire import RawClient

CHANGES_PER_S: Final = 100
_ACKNOWLEDGED_PER_S: Final = 95
"""The least of them that counts: some of a second may be late by what the machine is busy with."""
_SECONDS: Final = 5.0
_CONNECTIONS: Final = 8
_USER: Final = "User:ANONYMOUS"
_ADMINISTRATOR: Final = "127.0.0.1"
_CHANGING: Final = Rule(
    ResourceType.TOPIC,
    "changing",
    PatternType.LITERAL,
    _USER,
    SOURCE,
    Operation.DESCRIBE,
    Permission.ALLOW,
)


def measure_over_the_wire(bench: Bench, rules: list[Rule]) -> Iterable[Row]:
    """Rows of a broker that has these rules, about topics of other users."""
    figures = bench.measure_ours(lambda: _measure(bench, rules))
    text = "rules changed 100 times a second over the wire, the broker always busy"
    yield Row(
        f"{text}: changes that were acknowledged", "per s", figures["changes"], "more",
        limit=None if bench.is_trial else _ACKNOWLEDGED_PER_S,
    )  # fmt: skip
    yield Row(f"{text}: p50 of an acknowledgement", "ms", figures["p50"])
    yield Row(f"{text}: p99 of an acknowledgement", "ms", figures["p99"])
    yield Row(f"{text}: questions decided meanwhile", "per s", figures["rate"], "more")


def _measure(bench: Bench, rules: list[Rule]) -> Measured:
    directory = bench.directory / f"rule-changes-{time.monotonic_ns()}"
    settings = {"authorizer.class.name": "kohort"}
    server = bench.contenders[0].server(directory, settings)
    store_properties(server.data, {property_of(rule): "" for rule in [_may_administer(), *rules]})
    seconds = bench.scaled(_SECONDS, 0.3)
    with (
        RunningBroker(server) as broker,
        ThreadPoolExecutor(1) as pool,
    ):
        broker.wait_serving()
        load = pool.submit(
            generate,
            "denied",
            port=broker.port,
            connections=int(bench.scaled(_CONNECTIONS, 2)),
            seconds=seconds + bench.scaled(2.0, 0.5),
        )
        # Until it has begun.
        time.sleep(bench.scaled(1.0, 0.2))
        measured = _change(broker.port, seconds)
        return {**measured, **load.result()}


def _may_administer() -> Rule:
    return Rule(
        ResourceType.CLUSTER,
        CLUSTER_NAME,
        PatternType.LITERAL,
        _USER,
        _ADMINISTRATOR,
        Operation.ALL,
        Permission.ALLOW,
    )


def _change(port: int, seconds: float) -> Measured:
    waits_s: list[float] = []
    with (
        closing(RawClient(port, source=_ADMINISTRATOR, timeout_s=60)) as administrator,
        closing(RawClient(port, source=SOURCE, timeout_s=60)) as other,
    ):
        began_s = time.perf_counter()
        while (passed_s := time.perf_counter() - began_s) < seconds:
            time.sleep(max(0.0, len(waits_s) / CHANGES_PER_S - passed_s))
            asked_s = time.perf_counter()
            allows = len(waits_s) % 2 == 0
            (_create if allows else _remove)(administrator)
            waits_s.append(time.perf_counter() - asked_s)
            if _is_allowed(other) is not allows:
                raise RuntimeError("an answer is older than the change that was acknowledged")
        took_s = time.perf_counter() - began_s
    waits_s.sort()
    return {
        "changes": len(waits_s) / took_s,
        "p50": waits_s[len(waits_s) // 2] * 1e3,
        "p99": waits_s[len(waits_s) * 99 // 100] * 1e3,
    }


def _create(administrator: RawClient) -> None:
    request = CreateAclsRequest(creations=[creation_of(_CHANGING)])
    answer = administrator.call(request, 3, CreateAclsResponse)
    if answer.results[0].error_code:
        raise RuntimeError(f"no rule was created: {answer.results[0]}")


def _remove(administrator: RawClient) -> None:
    request = DeleteAclsRequest(filters=[filter_of(_CHANGING)])
    answer = administrator.call(request, 3, DeleteAclsResponse)
    if len(answer.filter_results[0].matching_acls) != 1:
        raise RuntimeError(f"the rule was not removed: {answer.filter_results[0]}")


def _is_allowed(client: RawClient) -> bool:
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=_CHANGING.resource_name)], allow_auto_topic_creation=False
    )
    (topic,) = client.call(request, 12, MetadataResponse).topics
    if topic.error_code not in {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }:
        raise RuntimeError(f"neither denied nor missing: {topic}")
    return topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
