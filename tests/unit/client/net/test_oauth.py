"""What a provider of tokens may be and may return."""

from functools import partial
from typing import Any

import pytest

from kohort import OAuthToken
from kohort.client.net.oauth import (
    TOKEN_BYTES_MAX,
    NoTokenError,
    Provider,
    is_fresh,
    is_good,
    token_from,
)

NOW_S = 1_000.0


@pytest.mark.parametrize(
    ("given", "token"),
    [
        ("a.b.c", OAuthToken("a.b.c")),
        (("a.b.c", 1_060), OAuthToken("a.b.c", 1_060)),
        (("a.b.c", 1_060.5, "alice"), OAuthToken("a.b.c", 1_060.5)),
        (("a.b.c", 1_060, "alice", {"pool": "7"}), OAuthToken("a.b.c", 1_060, {"pool": "7"})),
        (("a.b.c", 1_060, "", None), OAuthToken("a.b.c", 1_060)),
        (OAuthToken("a.b.c", 1_060), OAuthToken("a.b.c", 1_060)),
    ],
)
def test_every_common_form_of_a_token_is_understood(given: object, token: OAuthToken) -> None:
    assert token_from(given, NOW_S) == token


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (None, "type NoneType is not a token"),
        (b"a.b.c", "type bytes is not a token"),
        (("hidden-token",), "type tuple is not a token"),
        ("", "printable ASCII"),
        ("hidden token", "printable ASCII"),
        ("hidden-token\x01auth=Bearer x", "printable ASCII"),
        ("hidden-tökèn", "printable ASCII"),
        ("hidden-token\n", "printable ASCII"),
        ("h" * (TOKEN_BYTES_MAX + 1), f"the token has {TOKEN_BYTES_MAX + 1} bytes"),
        (("hidden-token", "soon"), "expiry is a str"),
        (("hidden-token", None), "expiry is a NoneType"),
        (("hidden-token", True), "expiry is a bool"),
        (("hidden-token", float("nan")), "expired"),
        (("hidden-token", NOW_S), "expired 0 s ago"),
        (("hidden-token", NOW_S - 90), "expired 90 s ago"),
        (OAuthToken("hidden-token", NOW_S - 90), "expired 90 s ago"),
        (("hidden-token", 2_000, "", {"auth": "x"}), "name is letters, and not auth"),
        (("hidden-token", 2_000, "", {"a1": "x"}), "name is letters"),
        (("hidden-token", 2_000, "", {"a": "x\x01y"}), "extension a is not printable"),
        (("hidden-token", 2_000, "", {"a": ""}), "extension a is not printable"),
        (("hidden-token", 2_000, "", {"a": 1}), "extension a is not printable"),
        (("hidden-token", 2_000, "", ["a"]), "extensions are a list"),
        (("hidden-token", 2_000, "", {"a": "x" * (TOKEN_BYTES_MAX + 1)}), "extensions of more"),
    ],
)
def test_what_is_no_token_is_told_without_showing_it(given: object, why: str) -> None:
    with pytest.raises(NoTokenError, match=why) as refused:
        token_from(given, NOW_S)
    assert "hidden" not in str(refused.value)


def test_a_token_is_not_shown() -> None:
    assert "hidden" not in repr(OAuthToken("hidden-token", 2_000))


def test_another_token_is_asked_for_after_four_fifths_of_its_life() -> None:
    token = OAuthToken("t", 1_100)
    assert is_fresh(token, 1_000, 1_079.9)
    assert not is_fresh(token, 1_000, 1_080.1)
    assert is_good(token, 1_099.9)
    assert not is_good(token, 1_100)


def test_a_token_without_an_expiry_is_used_once() -> None:
    token = OAuthToken("t")
    assert not is_fresh(token, 1_000, 1_000)
    assert not is_good(token, 1_000)


class Aiokafkas:
    """A provider as aiokafka wants it."""

    async def token(self) -> str:
        return "a.b.c"

    def extensions(self) -> dict[str, str]:
        return {"pool": "7"}


class KafkaPythons:
    """A provider as kafka-python wants it."""

    def token(self) -> str:
        return "a.b.c"

    def extensions(self) -> dict[str, str]:
        return {}


class Called:
    """An object that is called, and is asynchronous."""

    async def __call__(self) -> str:
        return "a.b.c"


async def coroutine(first: str = "a.b.c") -> str:
    return first


@pytest.mark.parametrize(
    ("given", "is_async"),
    [
        (coroutine, True),
        (partial(coroutine, "x"), True),
        (Called(), True),
        (Aiokafkas(), True),
        (KafkaPythons(), False),
        (lambda: "a.b.c", False),
        (partial(str, "a.b.c"), False),
    ],
)
def test_what_would_block_is_told_from_what_would_not(given: object, is_async: bool) -> None:
    assert Provider(given).is_async is is_async


def test_extensions_of_an_object_are_sent_with_its_token() -> None:
    assert Provider(Aiokafkas()).finish("a.b.c", NOW_S) == OAuthToken("a.b.c", None, {"pool": "7"})
    assert Provider(KafkaPythons()).finish("a.b.c", NOW_S) == OAuthToken("a.b.c")


@pytest.mark.parametrize("given", ["a.b.c", 7, object(), Aiokafkas])
def test_what_is_no_provider_is_refused(given: Any) -> None:  # noqa: ANN401
    with pytest.raises(ValueError, match="function without arguments, or an object with a method"):
        Provider(given)
