import pytest
from kio.schema.errors import ErrorCode as KioErrorCode

from kohort.protocol.errors import ErrorCode, KafkaError

NEWER_THAN_KIO = {134, 135, 136}


def test_codes_are_those_of_another_implementation() -> None:
    theirs = {code.name.upper(): int(code) for code in KioErrorCode}
    assert {code.name: int(code) for code in ErrorCode if code not in NEWER_THAN_KIO} == theirs


def test_codes_have_no_gap() -> None:
    assert sorted(ErrorCode) == list(range(-1, 137))


def test_codes_are_retriable_where_another_implementation_says_so() -> None:
    theirs = {int(code) for code in KioErrorCode if code.retriable}
    assert {int(code) for code in ErrorCode if code.retriable} == theirs


@pytest.mark.parametrize("message", [None, "the disk is full"])
def test_an_answer_to_the_peer_tells_its_code_and_why(message: str | None) -> None:
    error = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, message)
    assert error.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert error.message == message
    assert "KAFKA_STORAGE_ERROR" in str(error)
    assert (message or "KAFKA_STORAGE_ERROR") in str(error)


def test_a_message_is_short_enough_for_every_response() -> None:
    error = KafkaError(ErrorCode.INVALID_REQUEST, "\N{SNOWMAN}" * 100_000)
    assert error.message is not None
    assert len(error.message.encode()) < 32_767
    assert KafkaError(ErrorCode.INVALID_REQUEST, "short").message == "short"
