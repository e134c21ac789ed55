"""Tokens of SCRAM that were changed: none lets anybody in, and none an internal error."""

import base64
import hmac
import random

import pytest

from kohort.broker.core.security.sasl import Challenge, Credential, Done, SaslFailure, ScramExchange
from kohort.client.net.sasl import Scram
from kohort.protocol.scram import HASHES, keys_of, salted_password, signature, xor

USERS = ("alice", "bob")


def credentials(mechanism: str) -> dict[str, Credential]:
    name = HASHES[mechanism]
    return {
        user: Credential(
            salt, keys_of(name, salted_password(name, user.encode(), salt, 4_096)), 4_096
        )
        for user, salt in zip(USERS, (b"salt" * 4, b"pepper" * 4), strict=True)
    }


class Forger:
    """Takes what a client says and makes something else of it."""

    def __init__(self, mechanism: str, seed: int) -> None:
        self.mechanism = mechanism
        self.random = random.Random(seed)
        self.stored = credentials(mechanism)
        # What takes a client its time is done once.
        self.salted = {
            user: salted_password(HASHES[mechanism], user.encode(), one.salt, one.iterations)
            for user, one in self.stored.items()
        }
        self.heard: list[bytes] = []
        """Last tokens of earlier attempts."""

    def server(self) -> ScramExchange:
        nonce = f"{self.random.getrandbits(96):x}"
        return ScramExchange(self.mechanism, self.stored.__getitem__, nonce)

    def last_token(self, server: ScramExchange, user: str = "alice") -> bytes:
        """What a client says that knows its password, after the server's challenge."""
        bare = f"n={user},r={self.random.getrandbits(96):x}"
        challenge = server.step(f"n,,{bare}".encode())
        assert isinstance(challenge, Challenge)
        nonce = challenge.token.decode().partition(",")[0]
        said = f"c=biws,{nonce}"
        signed = f"{bare},{challenge.token.decode()},{said}".encode()
        hash_name = HASHES[self.mechanism]
        key = hmac.digest(self.salted[user], b"Client Key", hash_name)
        proof = xor(key, signature(hash_name, self.stored[user].keys.stored_key, signed))
        return f"{said},p={base64.b64encode(proof).decode()}".encode()

    def changed(self, token: bytes) -> bytes:
        """The token with something done to it."""
        choose = self.random
        data = bytearray(token)
        match choose.randrange(8):
            case 0:
                data[choose.randrange(len(data))] ^= 1 << choose.randrange(8)
            case 1:
                del data[choose.randrange(len(data)) :]
            case 2:
                data += choose.randbytes(choose.randrange(1, 40))
            case 3:
                at = choose.randrange(len(data))
                data[at:at] = choose.randbytes(choose.randrange(1, 9))
            case 4:
                at = choose.randrange(len(data))
                del data[at : at + choose.randrange(1, 9)]
            case 5:
                data = bytearray(choose.choice(self.heard) if self.heard else b"")
            case 6:
                fields = bytes(data).split(b",")
                choose.shuffle(fields)
                data = bytearray(b",".join(fields))
            case _:
                return self.last_token(self.server(), choose.choice(USERS))
        return bytes(data)


def proof_in(token: bytes) -> tuple[bytes, bytes] | None:
    """What was signed and the proof; the last letter of base64 has bits that say nothing."""
    said, sign, proof = token.rpartition(b",p=")
    try:
        return (said, base64.b64decode(proof, validate=True)) if sign else None
    except ValueError:
        return None


@pytest.mark.parametrize("mechanism", HASHES)
def test_an_unchanged_one_does(mechanism: str) -> None:
    forger = Forger(mechanism, seed=0)
    server = forger.server()
    assert isinstance(server.step(forger.last_token(server)), Done)


@pytest.mark.parametrize("mechanism", HASHES)
def test_no_changed_last_token_lets_anybody_in(mechanism: str, long_form: bool) -> None:
    forger = Forger(mechanism, seed=1)
    for number in range(500_000 if long_form else 2_000):
        server = forger.server()
        right = forger.last_token(server)
        token = forger.changed(right)
        if proof_in(token) == proof_in(right):
            continue
        with pytest.raises(SaslFailure):
            server.step(token)
        if number % 10 == 0:
            forger.heard.append(right)
        assert len(forger.heard) < 100_000


@pytest.mark.parametrize("mechanism", HASHES)
def test_a_changed_first_token_is_answered_or_fails(mechanism: str, long_form: bool) -> None:
    forger = Forger(mechanism, seed=2)
    right = Scram(HASHES[mechanism], "alice", "alice", "n0nce").first()
    answered = 0
    forger.stored = _AnyName(forger.stored["alice"])
    for _ in range(500_000 if long_form else 5_000):
        try:
            told = forger.server().step(forger.changed(right))
        except SaslFailure:
            continue
        assert not isinstance(told, Done)
        answered += 1
    assert answered


class _AnyName(dict[str, Credential]):
    """Everybody has the same one."""

    def __init__(self, one: Credential) -> None:
        super().__init__()
        self._one = one

    def __getitem__(self, name: str) -> Credential:
        return self._one
