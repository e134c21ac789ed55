"""Topic names follow Kafka's rules; the texts are those of a running Kafka 4.4.0."""

import pytest

from kohort.broker.topics.names import check_name, collision_key
from kohort.protocol.errors import ErrorCode, KafkaError

ALLOWED = "ASCII alphanumerics, '.', '_' and '-'"


@pytest.mark.parametrize("name", ["a", "A-Z_0.9", "...", "x" * 249, "__consumer_offsets"])
def test_a_legal_name_is_accepted(name: str) -> None:
    check_name(name)


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("", "the empty string is not allowed"),
        (".", "'.' is not allowed"),
        ("..", "'..' is not allowed"),
        ("x" * 250, f"the length of '{'x' * 250}' is longer than the max allowed length 249"),
        *(
            (
                name,
                f"'{name}' contains one or more characters other than {ALLOWED}",
            )
            for name in ("a b", "é", "a/b", "a\n", "٣", "a\0b")
        ),
    ],
)
def test_an_illegal_name_is_refused_in_kafkas_words(name: str, problem: str) -> None:
    with pytest.raises(KafkaError) as refused:
        check_name(name)
    assert refused.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert refused.value.message == f"Topic name is invalid: {problem}"


def test_names_that_differ_in_dots_and_underscores_collide() -> None:
    assert collision_key("a.b_c") == collision_key("a_b.c")
    assert collision_key("a-b") != collision_key("a_b")
