"""Operations on configs do what they do in Kafka."""

import pytest

from kohort.broker.config.topic import TOPIC_SETTINGS
from kohort.broker.handlers.alter_configs import Change, Operation, altered, replaced
from kohort.protocol.errors import KafkaError


def after(current: dict[str, str], *changes: tuple[str, int, str | None]) -> dict[str, str]:
    def default(name: str) -> str:
        return {"cleanup.policy": "delete"}[name]

    return altered(current, [Change(*change) for change in changes], TOPIC_SETTINGS, default)


def test_set_and_delete_leave_the_others_alone() -> None:
    state = after({"retention.ms": "5"}, ("segment.bytes", Operation.SET, "2000000"))
    assert state == {"retention.ms": "5", "segment.bytes": "2000000"}
    assert after(state, ("segment.bytes", Operation.DELETE, "ignored")) == {"retention.ms": "5"}
    assert after(state, ("never.set", Operation.DELETE, None)) == state


def test_append_and_subtract_begin_with_the_default() -> None:
    assert after({}, ("cleanup.policy", Operation.APPEND, "compact")) == {
        "cleanup.policy": "delete,compact"
    }
    assert after({}, ("cleanup.policy", Operation.SUBTRACT, "delete")) == {"cleanup.policy": ""}


def test_append_adds_nothing_twice_and_subtract_misses_nothing() -> None:
    state = {"cleanup.policy": "delete,compact"}
    assert after(state, ("cleanup.policy", Operation.APPEND, "compact, delete")) == state
    assert after(state, ("cleanup.policy", Operation.SUBTRACT, "other")) == state
    assert after(
        {"cleanup.policy": ""}, ("cleanup.policy", Operation.APPEND, "compact,delete")
    ) == {"cleanup.policy": "compact,delete"}


def test_replacing_keeps_only_what_is_listed() -> None:
    assert replaced([("a", "1"), ("b", "2")]) == {"a": "1", "b": "2"}
    with pytest.raises(KafkaError):
        replaced([("a", None)])
    with pytest.raises(KafkaError):
        replaced([("a", "1"), ("a", "2")])
