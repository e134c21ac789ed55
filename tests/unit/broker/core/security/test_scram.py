"""SCRAM's server side against RFC 7677's example, the client's own half, and everything wrong."""

import base64
import hmac
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.broker.core.security.sasl import (
    WRONG,
    Challenge,
    Credential,
    Done,
    SaslFailure,
    ScramExchange,
    made_up,
    read_plain,
)
from kohort.client.net.sasl import Scram
from kohort.protocol.scram import HASHES, keys_of, salted_password, signature, xor

NONCE = "ours-and-nobody-elses"
SECRET = bytes(32)


def credential(
    mechanism: str = "SCRAM-SHA-256", password: bytes = b"pencil", salt: bytes = b"salt" * 4
) -> Credential:
    name = HASHES[mechanism]
    return Credential(salt, keys_of(name, salted_password(name, password, salt, 4096)), 4096)


def exchange(found: Credential | None = None, mechanism: str = "SCRAM-SHA-256") -> ScramExchange:
    found = found or credential(mechanism)
    return ScramExchange(mechanism, lambda _: found, NONCE)


def test_the_example_of_rfc_7677_holds() -> None:
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    stored = credential(salt=salt)
    server = ScramExchange("SCRAM-SHA-256", lambda _: stored, "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    first = server.step(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO")
    assert first == Challenge(
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    final = server.step(
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert final == Done(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=", "user")


@pytest.mark.parametrize("mechanism", HASHES)
@pytest.mark.parametrize("name", ["alice", "a=b,c", "Jörg"])
def test_our_own_client_and_this_broker_prove_themselves_to_each_other(
    mechanism: str, name: str
) -> None:
    client = Scram(HASHES[mechanism], name, "pencil", "theirs")
    server = exchange(mechanism=mechanism)
    challenge = server.step(client.first())
    proof = client.answer(challenge.token)
    assert proof is not None
    done = server.step(proof)
    assert isinstance(done, Done)
    assert done.user == name
    assert client.answer(done.token) is None


@pytest.mark.parametrize(
    "token",
    [
        b"",
        b"y,,n=a,r=x",
        b"p=tls-unique,,n=a,r=x",
        b"n,,m=ext,n=a,r=x",
        b"n,,n=a",
        b"n,,n=a,r=",
        b"n,,n=,r=x",
        b"n,,n=a=2c,r=x",
        b"n,,n=a=,r=x",
        b"n,,n=\xff,r=x",
        b"n,a=bob,n=alice,r=x",
        b"n,,n=alice,r=x,tokenauth=true",
        b"n,,n=a,r=x\0",
    ],
)
def test_a_first_token_that_is_none_fails(token: bytes) -> None:
    with pytest.raises(SaslFailure):
        exchange().step(token)


def test_unknown_extensions_are_part_of_what_is_signed() -> None:
    server = exchange()
    client = Scram("sha256", "alice", "pencil", "theirs")
    client._first_bare += ",ext=7"
    challenge = server.step(b"n,,n=alice,r=theirs,ext=7")
    assert isinstance(server.step(client.answer(challenge.token) or b""), Done)


def signed_final(server: ScramExchange, binding: str, nonce: str) -> bytes:
    """A last token whose proof is right for what it says, with another binding or nonce."""
    bare = "n=alice,r=theirs"
    challenge = server.step(f"n,,{bare}".encode()).token.decode()
    said = f"c={binding},r={nonce}"
    name = HASHES["SCRAM-SHA-256"]
    salted = salted_password(name, b"pencil", b"salt" * 4, 4096)
    sign = signature(name, credential().keys.stored_key, f"{bare},{challenge},{said}".encode())
    proof = base64.b64encode(xor(hmac.digest(salted, b"Client Key", name), sign)).decode()
    return f"{said},p={proof}".encode()


def test_a_last_token_that_is_signed_by_hand_is_right() -> None:
    server = exchange()
    assert isinstance(server.step(signed_final(server, "biws", f"theirs{NONCE}")), Done)


@pytest.mark.parametrize(
    ("binding", "nonce", "why"),
    [
        ("biws", f"theirs{NONCE}x", "the nonce differs"),
        ("biws", f"theirs{NONCE[:-1]}", "the nonce differs"),
        ("biws", f"xheirs{NONCE}", "the nonce differs"),
        ("biws", "theirs", "the nonce differs"),
        ("eSws", f"theirs{NONCE}", "channel binding"),
        ("biw=", f"theirs{NONCE}", "channel binding"),
        ("cD10bHMtdW5pcXVlLCw=", f"theirs{NONCE}", "channel binding"),
        ("", f"theirs{NONCE}", "channel binding"),
    ],
)
def test_what_is_signed_rightly_has_the_brokers_nonce_and_no_binding(
    binding: str, nonce: str, why: str
) -> None:
    server = exchange()
    with pytest.raises(SaslFailure, match=why):
        server.step(signed_final(server, binding, nonce))


def test_a_wrong_password_fails_at_the_proof() -> None:
    server = exchange()
    client = Scram("sha256", "alice", "other", "theirs")
    proof = client.answer(server.step(client.first()).token) or b""
    with pytest.raises(SaslFailure, match="wrong password"):
        server.step(proof)


def test_a_user_who_is_not_there_is_answered_like_one_who_is() -> None:
    for mechanism, name in HASHES.items():
        unknown = made_up(mechanism, "nobody", SECRET)
        assert unknown == made_up(mechanism, "nobody", SECRET)
        assert unknown.salt != made_up(mechanism, "somebody", SECRET).salt
        assert len(unknown.salt) == 26
        server = exchange(unknown, mechanism)
        client = Scram(name, "nobody", "pencil", "theirs")
        proof = client.answer(server.step(client.first()).token)
        with pytest.raises(SaslFailure, match="unknown user") as failure:
            server.step(proof or b"")
        assert failure.value.client_message is None


@given(st.lists(st.binary(max_size=60), min_size=1, max_size=3))
def test_whatever_comes_is_a_failure_and_no_fault(tokens: list[bytes]) -> None:
    server = exchange()
    with suppress(SaslFailure):
        for token in tokens:
            assert not isinstance(server.step(token), Done)


def test_secrets_are_in_no_text() -> None:
    assert "pencil" not in repr(read_plain(b"\0alice\0pencil"))
    assert repr(credential()) == "Credential(iterations=4096)"
    assert repr(credential().keys) == "Keys()"


@pytest.mark.parametrize(
    ("token", "told"),
    [
        (b"alice\0pencil", "expected 3 tokens, got 2"),
        (b"\0a\0b\0c", "expected 3 tokens, got 4"),
        (b"\0\0pencil", "username not specified"),
        (b"\0alice\0", "password not specified"),
    ],
)
def test_a_token_of_plain_that_is_none_is_told_why(token: bytes, told: str) -> None:
    with pytest.raises(SaslFailure) as failure:
        read_plain(token)
    assert told in str(failure.value.client_message)


def test_who_wants_to_be_somebody_else_fails_after_the_password() -> None:
    read_plain(b"alice\0alice\0x").check_authzid()
    with pytest.raises(SaslFailure):
        read_plain(b"bob\0alice\0x").check_authzid()
    assert "user" in WRONG
