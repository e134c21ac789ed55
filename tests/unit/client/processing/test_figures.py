import json
from typing import Any

from kohort.client.core.partitions import TopicPartition
from kohort.client.processing.figures import Counts, RunFigures

LIMITS = {"session_timeout_ms": 45_000, "max_poll_interval_ms": 300_000}


def figures(**given: object) -> RunFigures:
    values: dict[str, Any] = {
        **dict.fromkeys(Counts.__dataclass_fields__, 0),
        "is_running": True,
        "in_flight": 1,
        "waiting": 0,
        "held_bytes": 10,
        "oldest_in_flight_seconds": 1.0,
        "oldest_in_flight": (TopicPartition("t", 1), 5),
        "handler_seconds": None,
        "dead_letters_failing_seconds": None,
        "dead_letter_error": None,
    }
    return RunFigures(**{**values, **given})


def test_a_handler_that_hangs_is_a_problem_as_a_poll_that_does_not_come_is() -> None:
    assert figures(handler_seconds=299.0).problem(**LIMITS) is None
    problem = figures(handler_seconds=300.0).problem(**LIMITS)
    assert problem is not None
    assert "has not returned for 300 seconds" in problem
    assert figures(handler_seconds=300.0, is_running=False).problem(**LIMITS) is None


def test_dead_letters_that_cannot_be_written_are_a_problem_after_a_while() -> None:
    failing = {"dead_letter_error": "ConnectionError('gone')"}
    assert figures(dead_letters_failing_seconds=44.0, **failing).problem(**LIMITS) is None
    problem = figures(dead_letters_failing_seconds=45.0, **failing).problem(**LIMITS)
    assert problem == "Writing dead letters has failed for 45 seconds: ConnectionError('gone')"


def test_figures_are_json() -> None:
    told = json.loads(json.dumps(figures().as_dict()))
    assert told["oldest_in_flight"] == {"topic": "t", "partition": 1, "offset": 5}
