"""Read, process, write, exactly once, by other people's libraries: a program of each copies a
topic in transactions, and is killed as its broker is.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.interop.foreign.copying import check_copy
from tests.interop.foreign.programs import (
    go_program,
    node_program,
    python_program,
    spring_program,
)
from tests.support.brokers.kafka_server import KafkaServer
from tests.support.brokers.kohort_server import KohortServer

KILLS = 9

COPIERS = {
    "aiokafka": (python_program, "copy_with_aiokafka"),
    "confluent-kafka": (python_program, "copy_with_confluent"),
    "kafka-python": (python_program, "copy_with_kafka_python"),
    "franz-go": (go_program, "copy-with-franz"),
    "sarama": (go_program, "copy-with-sarama"),
    "kafkajs": (node_program, "copy-with-kafkajs"),
    "spring-kafka": (spring_program, "CopyWithSpring"),
}


@pytest.mark.long
@pytest.mark.parametrize(("build", "program"), COPIERS.values(), ids=COPIERS)
def test_a_copy_is_the_original_whichever_side_is_killed_meanwhile(
    build: Callable[[str], list[str]],
    program: str,
    tmp_path: Path,
    own_broker_kind: type[KafkaServer | KohortServer],
) -> None:
    check_copy(tmp_path, own_broker_kind, build(program), kills=KILLS)
