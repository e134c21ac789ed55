"""Claims of tokens, one by one at their bounds, and the messages that tokens come in."""

import json
import math
from collections.abc import Mapping
from typing import Final

import pytest

from kohort.broker.core.security.oauthbearer import (
    TOKEN_CHARACTERS_MAX,
    Claimed,
    TokenRules,
    checked_subject,
    read_message,
)
from kohort.broker.core.security.sasl import SaslFailure

NOW_S: Final = 1_700_000_000
SKEW_S: Final = 30
RULES: Final = TokenRules(("kohort", "others"), "https://issuer.example", SKEW_S, "sub")
CLAIMS: Final[dict[str, object]] = {
    "iss": "https://issuer.example",
    "aud": ["elsewhere", "kohort"],
    "sub": "alice",
    "iat": NOW_S - 60,
    "exp": NOW_S + 60,
}


def checked(
    changes: Mapping[str, object], rules: TokenRules = RULES, now_s: float = NOW_S
) -> tuple[str, int]:
    return checked_subject({**CLAIMS, **changes}, rules, now_s)


def refused(why: str, changes: Mapping[str, object], rules: TokenRules = RULES) -> None:
    with pytest.raises(SaslFailure, match=why):
        checked(changes, rules)


def test_a_token_names_its_subject_and_how_long_it_is_good() -> None:
    assert checked({}) == ("alice", 60_000)
    assert checked({"exp": NOW_S + 0.25}) == ("alice", 250)


@pytest.mark.parametrize("name", ["exp", "iat", "iss", "aud", "sub"])
def test_every_claim_has_to_be_there(name: str) -> None:
    claims = {one: value for one, value in CLAIMS.items() if one != name}
    with pytest.raises(SaslFailure):
        checked_subject(claims, RULES, NOW_S)


def test_no_claims_are_not_enough_for_rules_that_ask_for_nothing() -> None:
    lax = TokenRules((), None, SKEW_S, "sub")
    claims = {"sub": "alice", "iat": NOW_S, "exp": NOW_S + 60}
    assert checked_subject(claims, lax, NOW_S) == ("alice", 60_000)
    for name in claims:
        fewer = {one: value for one, value in claims.items() if one != name}
        with pytest.raises(SaslFailure, match=name):
            checked_subject(fewer, lax, NOW_S)


def test_it_is_good_until_its_end_and_the_skew_and_not_a_moment_longer() -> None:
    end_s = NOW_S + 60 + SKEW_S
    # Beyond the end itself there is no time left, and a session needs some.
    assert checked({}, now_s=end_s - 0.001) == ("alice", 1)
    with pytest.raises(SaslFailure, match="expired"):
        checked({}, now_s=end_s)


@pytest.mark.parametrize("name", ["iat", "nbf"])
def test_it_is_good_from_its_beginning_less_the_skew(name: str) -> None:
    assert checked({name: NOW_S + SKEW_S})[0] == "alice"
    refused("not valid yet", {name: NOW_S + SKEW_S + 0.001})


@pytest.mark.parametrize("name", ["exp", "iat", "nbf"])
@pytest.mark.parametrize(
    "value",
    [
        None, "", str(NOW_S + 60), "soon", True, False, [], [NOW_S], {}, {"n": NOW_S},
        json.loads("1e400"), -1e400, math.nan, -1, 2**53 + 1, 10**400, 1e300,
        json.loads("[" * 900 + "]" * 900),
    ],
    ids=lambda one: f"{one!r:.20}",
)  # fmt: skip
def test_a_time_is_a_number_that_can_be_a_time(name: str, value: object) -> None:
    refused(f"{name} is (missing or not a number|not a valid time)", {name: value})


def test_bounds_of_times_are_times() -> None:
    assert checked({"exp": 2**53, "iat": 0, "nbf": 0.0})[0] == "alice"


@pytest.mark.parametrize(
    "issuer",
    [None, "", "https://issuer.example/", "HTTPS://ISSUER.EXAMPLE", ["https://issuer.example"], 7],
)
def test_an_issuer_is_the_one_that_is_asked_for_letter_by_letter(issuer: object) -> None:
    refused("another issuer", {"iss": issuer})


@pytest.mark.parametrize("audience", ["kohort", "others", ["others"], ["x", 7, None, "kohort"]])
def test_one_audience_of_those_asked_for_is_enough(audience: object) -> None:
    assert checked({"aud": audience})[0] == "alice"


@pytest.mark.parametrize(
    "audience",
    [None, "", [], "Kohort", "kohort,others", [["kohort"]], {"kohort": 1}, 7, ["koh", "ort"]],
)
def test_other_audiences_are_not(audience: object) -> None:
    refused("another audience", {"aud": audience})


@pytest.mark.parametrize(
    "subject",
    [None, "", " \t\n", "\0", " \x1f\u00a0 ", 7, True, ["alice"], {"alice": 1}, "a\ud800"],
)
def test_a_subject_is_a_text_of_something(subject: object) -> None:
    refused("no sub", {"sub": subject})


def test_a_subject_is_the_same_with_spaces_around_it() -> None:
    """Kafka's trims it; so rules and disabled users that name it apply."""
    for subject in (" alice", "alice\t\r\n", "\x00\x1f alice "):
        assert checked({"sub": subject})[0] == "alice"
    assert checked({"sub": "\u00a0alice b"})[0] == "\u00a0alice b"


def test_another_claim_may_name_the_subject() -> None:
    rules = RULES._replace(subject_claim="email")
    assert checked({"email": "a@b"}, rules)[0] == "a@b"
    refused("no email", {}, rules)


def test_a_message_brings_its_token_and_who_somebody_wants_to_be() -> None:
    assert read_message(b"n,,\x01auth=Bearer a.b.c\x01\x01") == Claimed("", "a.b.c")
    assert read_message(b"n,a=bob,\x01auth=bEARER x\x01k=v w\x01\x01") == Claimed("bob", "x")
    longest = b"x" * TOKEN_CHARACTERS_MAX
    assert len(read_message(b"n,,\x01auth=Bearer " + longest + b"\x01\x01").token) == 16_384
    assert "x" not in repr(Claimed("", "x"))


@pytest.mark.parametrize(
    "data",
    [
        b"", b"n,,", b"y,,\x01auth=Bearer x\x01\x01", b"p=tls,,\x01auth=Bearer x\x01\x01",
        b"n,,\x01auth=Basic x\x01\x01", b"n,,\x01auth=Bearer \x01\x01",
        b"n,,\x01auth=Bearer x\x01", b"n,,\x01auth=Bearer x\x01\x01y",
        b"n,,\x01auth=Bearer x y\x01\x01", b"n,a=b,c,\x01auth=Bearer x\x01\x01",
        b"n,,\x01auth=Bearer x\x011=v\x01\x01", b"n,,\x01k=v\x01auth=Bearer x\x01\x01",
        b"n,,\x01auth=Bearer " + b"x" * (TOKEN_CHARACTERS_MAX + 1) + b"\x01\x01",
    ],
)  # fmt: skip
def test_other_messages_are_none(data: bytes) -> None:
    with pytest.raises(SaslFailure):
        read_message(data)
