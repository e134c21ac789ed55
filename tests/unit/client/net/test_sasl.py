"""The mechanisms against the examples of their RFCs, and against brokers that break the rules."""

import base64

import pytest

from kohort.client.net.sasl import ITERATIONS_MAX, Plain, SaslError, Scram, mechanism
from kohort.protocol.scram import ITERATIONS_MIN

NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = (
    b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def test_plain_is_the_form_of_rfc_4616_and_needs_no_answer() -> None:
    plain = Plain("tim", "tanstaaftanstaaf")
    assert plain.first() == b"\0tim\0tanstaaftanstaaf"
    assert plain.answer(b"") is None


def test_scram_sha_256_is_the_exchange_of_rfc_7677() -> None:
    scram = mechanism("SCRAM-SHA-256", "user", "pencil", NONCE)
    assert scram.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert scram.answer(SERVER_FIRST) == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert scram.answer(SERVER_FINAL) is None


def test_names_keep_their_commas_and_equals_signs() -> None:
    assert Scram("sha256", "a=b,c", "x", "n").first() == b"n,,n=a=3Db=2Cc,r=n"


def test_a_broker_that_does_not_know_the_password_is_found_out() -> None:
    scram = mechanism("SCRAM-SHA-256", "user", "pencil", NONCE)
    scram.first()
    scram.answer(SERVER_FIRST)
    forged = base64.b64encode(bytes(32))
    with pytest.raises(SaslError, match="did not prove"):
        scram.answer(b"v=" + forged)


def test_what_the_broker_says_is_wrong_is_told() -> None:
    scram = mechanism("SCRAM-SHA-256", "user", "pencil", NONCE)
    scram.answer(SERVER_FIRST)
    with pytest.raises(SaslError, match="invalid-proof"):
        scram.answer(b"e=invalid-proof")


def first_with(**changes: str) -> bytes:
    parts = {"r": f"{NONCE}server", "s": "c2FsdA==", "i": "4096"} | changes
    return ",".join(f"{name}={value}" for name, value in parts.items()).encode()


@pytest.mark.parametrize(
    ("token", "what"),
    [
        (b"", "not a SCRAM message"),
        (b"\xff\xfe", "not text"),
        (b"m=must-know," + first_with(), "not a SCRAM message"),
        (b"x" * 20_000, "20000 bytes"),
        (first_with(r="another"), "nonce"),
        (first_with(r=NONCE), "nonce"),
        (first_with(s="c2F sdA=="), "base64"),
        (first_with(s="ü"), "base64"),
        (first_with(i="many"), "not a number"),
        (first_with(i="9" * 5_000), "not a number"),
        (first_with(i=str(ITERATIONS_MIN - 1)), "iterations"),
        (first_with(i=str(ITERATIONS_MAX + 1)), "iterations"),
        (first_with(i="-4096"), "not a number"),
    ],
)
def test_a_first_token_that_breaks_the_rules_ends_the_attempt(token: bytes, what: str) -> None:
    scram = mechanism("SCRAM-SHA-512", "user", "pencil", NONCE)
    with pytest.raises(SaslError, match=what):
        scram.answer(token)


@pytest.mark.parametrize("token", [b"", b"v=", b"v=?", b"hello", b"\xff", b"v=" + b"x" * 20_000])
def test_a_last_token_that_breaks_the_rules_ends_the_attempt(token: bytes) -> None:
    scram = mechanism("SCRAM-SHA-256", "user", "pencil", NONCE)
    scram.answer(SERVER_FIRST)
    with pytest.raises(SaslError):
        scram.answer(token)


def test_extensions_behind_the_iteration_count_do_no_harm() -> None:
    scram = mechanism("SCRAM-SHA-256", "user", "pencil", NONCE)
    proof = scram.answer(first_with() + b",t=optional")
    assert proof is not None
    assert b"pencil" not in proof
