import dataclasses
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Any, get_type_hints

import pytest

from kohort.client.core.errors import ConfigError
from kohort.client.processing.dead_letters import DeadLetter
from kohort.client.processing.options import RunOptions, RunSettings, options_from
from kohort.testing import VirtualKafka
from tests.unit.client.processing.members import fill, member

GOOD: dict[str, Any] = {
    "concurrency": 1,
    "ordering": "key",
    "retries": 3,
    "retry_on": Exception,
    "retry_backoff_ms": 1,
    "retry_backoff_max_ms": 1,
    "retry_jitter": 0.0,
    "handler_timeout_ms": None,
    "dead_letter": None,
    "on_failure": "stop",
    "commit_interval_ms": None,
    "drain_timeout_ms": 0,
    "in_flight_records_limit": 1,
    "in_flight_bytes_limit": 1,
    "uncommitted_records_limit": 1,
    "stop_on": (),
    "around": None,
    "on_unreadable": "stop",
    "producer": None,
}


async def store(letter: DeadLetter) -> None:
    raise AssertionError(letter)


@pytest.mark.parametrize(
    "wrong",
    [
        {"concurrency": 0},
        {"concurrency": 1.5},
        {"concurrency": True},
        {"concurrency": None},
        {"ordering": "none"},
        {"retries": -1},
        {"retry_on": "OSError"},
        {"retry_on": ("OSError",)},
        {"retry_on": [OSError]},
        {"retry_on": int},
        {"retry_on": None},
        {"retry_backoff_ms": 2},
        {"retry_jitter": 1},
        {"retry_jitter": -0.1},
        {"handler_timeout_ms": 0},
        {"dead_letter": ""},
        {"dead_letter": 3},
        {"on_failure": "retry"},
        {"on_failure": "skip", "dead_letter": "d"},
        {"on_unreadable": "retry"},
        {"on_unreadable": "dead_letter"},
        {"around": 3},
        {"in_flight_records_limit": 0},
    ],
    ids=str,
)
def test_what_cannot_be_used_is_refused_by_its_name(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        RunOptions(**{**GOOD, **wrong})


@pytest.mark.parametrize(
    "retry_on",
    [OSError, (OSError, KeyError), lambda error: isinstance(error, OSError)],
    ids=["class", "classes", "function"],
)
def test_which_exceptions_are_worth_another_attempt_is_said_in_three_ways(retry_on: object) -> None:
    options = RunOptions(**{**GOOD, "retry_on": retry_on})
    assert options.is_retried(ConnectionError())
    assert not options.is_retried(ValueError())


def test_what_a_run_may_be_given_are_its_options() -> None:
    assert get_type_hints(RunSettings) == get_type_hints(RunOptions)
    for field in dataclasses.fields(RunOptions):
        assert field.default is not dataclasses.MISSING, field.name
    RunOptions()


def test_an_unknown_option_is_rejected_with_the_nearest_one() -> None:
    with pytest.raises(ConfigError, match="did you mean handler_timeout_ms"):
        options_from({"handler_timeout": 3})
    assert options_from({"retries": 1}) == RunOptions(retries=1)


async def handle(_record: object) -> None: ...


async def async_generator(_record: object) -> AsyncIterator[None]:
    yield


def generator(_record: object) -> Iterator[None]:
    yield


class GeneratorObject:
    async def __call__(self, _record: object) -> AsyncIterator[None]:
        yield


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: handle(None), "pass the function, do not call it"),
        (lambda: None, "not None"),
        (lambda: "handle", "not 'handle'"),
        (lambda: async_generator, "remove its yield"),
        (lambda: generator, "remove its yield"),
        (lambda: partial(generator), "remove its yield"),
        (GeneratorObject, "remove its yield"),
    ],
    ids=["coroutine", "None", "name", "async-generator", "generator", "partial", "object"],
)
async def test_what_cannot_handle_records_is_refused_before_any_is_read(
    virtual_kafka: VirtualKafka, make: Callable[[], Any], message: str
) -> None:
    await fill(virtual_kafka, [b"1"])
    async with member(virtual_kafka) as consumer:
        for run in (consumer.run, consumer.run_batches):
            with pytest.raises(ConfigError, match=message):
                await run(make(), on_failure="skip", retries=0)
        assert consumer.health().run is None
