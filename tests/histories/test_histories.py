"""Runs of a real broker, of brokers with planted faults, and of a Kafka."""

import random
from pathlib import Path

import pytest

from tests.histories.anomalies import Kind
from tests.histories.broker import FAULTS
from tests.histories.disturbances import CUT, EVERY, KILL, NOT_LETHAL, Pace
from tests.histories.run import PACE, Result, errors_told, kohort, run
from tests.support.brokers.kafka_server import KafkaServer

SHORT_S = 1.0
LONG_S = 60
SHORT_PACE = Pace(0.2, 0.6)

SHOWN_BY = {
    "wrong-marker": Kind.G1A,
    "missing-marker": Kind.UNSEEN,
    "stable-offset-ignored": Kind.G1B,
    "aborts-untold": Kind.G1A,
    "positions-always-committed": Kind.OFFSET_WITHOUT_RECORDS,
    "positions-never-committed": Kind.RECORDS_WITHOUT_OFFSET,
    "repetitions-appended": Kind.DUPLICATE,
}
"""What a planted fault comes to, whatever else."""


@pytest.fixture
def seed() -> str:
    return str(random.SystemRandom().randrange(10**9))


def said(result: Result) -> str:
    """For the one who has to find out."""
    return f"seed {result.seed}: " + "\n".join(str(one) for one in result.anomalies[:20])


def test_a_broker_that_is_disturbed_makes_no_anomaly(
    tmp_path: Path, seed: str, *, long_form: bool
) -> None:
    server, clock = kohort(tmp_path)
    with server:
        result = run(
            server,
            clock,
            seed=seed,
            seconds=LONG_S if long_form else SHORT_S,
            kinds=EVERY if long_form else [KILL],
            pace=PACE if long_form else SHORT_PACE,
        )
    assert not result.anomalies, said(result)
    assert not errors_told(server)
    assert result.outcomes["COMMITTED"], "nothing was done"
    assert result.disturbances[KILL], "nothing happened"


@pytest.mark.long
@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(tmp_path: Path, seed: str, fault: str) -> None:
    server, clock = kohort(tmp_path, fault=fault)
    with server:
        result = run(server, clock, seed=seed, seconds=5, kinds=[CUT], pace=SHORT_PACE, end_s=3)
    assert SHOWN_BY[fault] in {anomaly.kind for anomaly in result.anomalies}, f"seed {seed}"


@pytest.mark.long
def test_a_kafka_makes_no_anomaly(tmp_path: Path, seed: str) -> None:
    with KafkaServer(tmp_path) as server:
        result = run(server, None, seed=seed, seconds=LONG_S, kinds=NOT_LETHAL)
    assert not result.anomalies, said(result)
