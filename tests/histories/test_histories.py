"""Runs of a real broker, of brokers with planted faults, and of a Kafka."""

from pathlib import Path

import pytest

from tests.histories.broker import FAULTS
from tests.histories.disturbances import EVERY, KILL, Pace
from tests.histories.run import Result, kohort, run
from tests.support.brokers.kafka_server import KafkaServer

SHORT_S = 1.0
LONG_S = 60


def said(result: Result) -> str:
    return f"seed {result.seed}: " + "\n".join(str(one) for one in result.anomalies[:20])


def test_a_broker_that_is_disturbed_makes_no_anomaly(tmp_path: Path, *, long_form: bool) -> None:
    server, clock = kohort(tmp_path)
    seconds = LONG_S if long_form else SHORT_S
    pace = Pace(0.3, 2) if long_form else Pace(0.2, 0.6)
    kinds = EVERY if long_form else [KILL]
    with server:
        result = run(server, clock, seed=str(tmp_path), seconds=seconds, kinds=kinds, pace=pace)
    assert not result.anomalies, said(result)
    assert result.outcomes["COMMITTED"], "nothing was done"
    assert result.disturbances.total(), "nothing happened"


@pytest.mark.long
@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(tmp_path: Path, fault: str) -> None:
    server, clock = kohort(tmp_path, fault=fault)
    with server:
        result = run(server, clock, seed=fault, seconds=5, pace=Pace(0.5, 1), end_s=3)
    assert result.anomalies


@pytest.mark.long
def test_a_kafka_makes_no_anomaly(tmp_path: Path) -> None:
    with KafkaServer(tmp_path) as server:
        result = run(server, None, seed=str(tmp_path), seconds=LONG_S)
    assert not result.anomalies, said(result)
