import sys
import time
from typing import Any

import pytest
from aiokafka.abc import AbstractTokenProvider

from kohort import OAuthToken
from kohort.client.config import ConsumerConfig
from kohort.client.core.errors import ConfigError
from kohort.client.core.records import ConsumerRecord
from kohort.client.net.loop_tokens import token_for
from kohort.client.processing.dead_letters import (
    EARLIER_HEADERS_LIMIT,
    PREFIX,
    STACK_LIMIT,
    TEXT_LIMIT,
    DeadLetter,
    TopicSink,
    _producer_settings,
    sink_for,
)
from kohort.protocol.records.batch import TimestampType

Headers = tuple[tuple[str, bytes | None], ...]


def letter(error: Exception, headers: Headers = ()) -> DeadLetter:
    record = ConsumerRecord[bytes | None, bytes | None](
        "t", 3, 17, 1_000, TimestampType.CREATE_TIME, b"k", b"v", 1, 1, headers
    )
    return DeadLetter(record, error, attempts=4, group_id="g", failed_at_ms=2_000)


def raised(error: Exception, cause: Exception | None = None) -> Exception:
    try:
        raise error from cause
    except type(error) as caught:
        return caught


def test_headers_tell_where_a_record_was_and_what_happened() -> None:
    headers = dict(letter(raised(LookupError("no"), KeyError("k"))).headers())
    stack = headers.pop(f"{PREFIX}stacktrace")
    assert stack is not None
    assert b"LookupError: no" in stack
    assert {name.removeprefix(PREFIX): value for name, value in headers.items()} == {
        "topic": b"t",
        "partition": b"3",
        "offset": b"17",
        "timestamp": b"1000",
        "group": b"g",
        "exception": b"LookupError",
        "message": b"no",
        "cause": b"KeyError: 'k'",
        "attempts": b"4",
        "failed.at": b"2000",
    }


def test_the_records_own_headers_stay_first_and_as_they_are() -> None:
    own: Headers = (("trace", b"\x00\xff"), ("empty", None), ("trace", b"again"))
    assert letter(ValueError(), own).headers()[:3] == list(own)


def test_what_goes_round_again_and_again_does_not_grow_for_ever() -> None:
    headers: Headers = (("own", b"1"),)
    for _ in range(50):
        headers = tuple(letter(raised(ValueError("x" * 100)), headers).headers())
    assert headers[0] == ("own", b"1")
    stacks = [value for name, value in headers if name == f"{PREFIX}stacktrace"]
    assert len(stacks) == 1
    assert len(headers) <= 1 + EARLIER_HEADERS_LIMIT + 11


def test_texts_and_stacks_are_bounded() -> None:
    def descend(depth: int) -> None:
        if not depth:
            raise ValueError("y" * 100_000)
        descend(depth - 1)

    with pytest.raises(ValueError, match="y") as caught:
        descend(200)
    headers = dict(letter(caught.value).headers())
    assert len(headers[f"{PREFIX}message"] or b"") == TEXT_LIMIT
    assert len(headers[f"{PREFIX}stacktrace"] or b"") == STACK_LIMIT


def test_an_exception_that_cannot_say_what_it_is_is_written_all_the_same() -> None:
    class MuteError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    headers = dict(letter(raised(MuteError())).headers())
    assert headers[f"{PREFIX}message"] == b"(its message could not be formatted)"


def test_a_topic_takes_aiokafka_and_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aiokafka", None)
    with pytest.raises(ConfigError, match=r"pip install 'kohort\[dead-letters\]'"):
        sink_for("dead", ConsumerConfig(group_id="g"))


def test_its_producer_connects_as_the_consumer_does() -> None:
    security: dict[str, Any] = {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "billing",
        "sasl_plain_password": "secret",
    }
    config = ConsumerConfig(bootstrap_servers="one:1,two:2", client_id="c", **security)
    settings = TopicSink("dead", config)._settings
    assert settings.items() >= security.items()
    assert settings["bootstrap_servers"] == "one:1,two:2"
    assert settings["enable_idempotence"] is True


async def test_its_producer_shares_the_consumers_tokens() -> None:
    count = 0

    async def provider() -> OAuthToken:
        nonlocal count
        count += 1
        return OAuthToken(f"token-{count}", time.time() + 3_600, {"pool": "7"})

    config = ConsumerConfig(
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=provider,
    )
    shared = await token_for(config.security, 30)
    assert shared is not None
    found = _producer_settings(config)["sasl_oauth_token_provider"]
    assert isinstance(found, AbstractTokenProvider)
    assert (await found.token(), found.extensions()) == (shared.value, {"pool": "7"})
    assert count == 1
