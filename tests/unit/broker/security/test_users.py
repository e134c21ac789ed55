"""What a stranger could learn of users by the work that an answer takes."""

from collections.abc import Iterator

import pytest

from kohort.broker.core.security import sasl
from kohort.broker.core.security.sasl import Credential, VisibleProperties, made_up
from kohort.broker.security.users import CredentialKey, Users
from kohort.broker.storage.metadata.store import MetadataStore

SCRAM = "SCRAM-SHA-256"
OTHER = "SCRAM-SHA-512"


@pytest.fixture
def users() -> Iterator[Users]:
    store = MetadataStore(None, new_cluster_id="c")
    made = Users(store)
    made.load_secret()
    made.apply(
        [(CredentialKey("alice", SCRAM), made_up(SCRAM, "alice", b"x", VisibleProperties(8_192)))]
    )
    yield made
    store.close()


def test_as_much_is_made_up_for_a_user_who_is_there_as_for_one_who_is_not(
    users: Users, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def counting(mechanism: str, name: str, secret: bytes, look: VisibleProperties) -> Credential:
        asked.append(name)
        return made_up(mechanism, name, secret, look)

    monkeypatch.setattr(sasl, "made_up", counting)
    for name in ("alice", "nobody"):
        users.find(SCRAM, name)
        users.work_for(name)
    assert asked == ["alice", "alice", "nobody", "nobody"]


def test_users_are_not_counted_for_each_stranger(
    users: Users, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[object] = []

    class Counting(dict[CredentialKey, Credential]):
        def items(self):  # type: ignore[no-untyped-def]  # noqa: ANN202 - a dict's.
            counted.append(self)
            return super().items()

    monkeypatch.setattr(users, "_credentials", Counting(users._credentials))
    for number in range(100):
        users.find(SCRAM, f"nobody-{number}")
        users.work_for(f"nobody-{number}")
    assert len(counted) <= 1


def test_what_is_made_up_is_like_what_most_have(users: Users) -> None:
    assert users.find(SCRAM, "nobody").iterations == 8_192
    assert users.find(OTHER, "nobody").iterations == 4_096
    assert [one.mechanism for one in users.work_for("nobody")] == [SCRAM]
    users.apply([(CredentialKey("alice", SCRAM), None)])
    users.apply(
        [(CredentialKey("bob", OTHER), made_up(OTHER, "bob", b"x", VisibleProperties(16_384)))]
    )
    assert users.find(OTHER, "nobody").iterations == 16_384
    assert [one.mechanism for one in users.work_for("nobody")] == [OTHER]


def test_the_work_of_a_password_is_the_same_whatever_somebody_has(users: Users) -> None:
    users.apply(
        [(CredentialKey("alice", OTHER), made_up(OTHER, "alice", b"x", VisibleProperties(16_384)))]
    )
    users.apply(
        [(CredentialKey("bob", OTHER), made_up(OTHER, "bob", b"x", VisibleProperties(4_096)))]
    )
    stored = [made_up(OTHER, "carol", b"x")._replace(is_made_up=False)]
    users.apply([(CredentialKey("carol", OTHER), stored[0])])
    work = {name: users.work_for(name) for name in ("alice", "bob", "carol", "nobody")}
    assert len({tuple((one.mechanism, one.rounds) for one in each) for each in work.values()}) == 1
    assert {one.rounds for one in work["nobody"]} == {8_192, 16_384}
    assert [one.credential for one in work["carol"] if not one.credential.is_made_up] == stored


@pytest.mark.parametrize("salt", [b"salt", b"8 bytes!", bytes(64), bytes(200), b"k" * 26])
def test_a_salt_that_is_made_up_has_the_length_and_the_letters_of_others(
    users: Users, salt: bytes
) -> None:
    like_alice = made_up(SCRAM, "alice", b"x")._replace(salt=salt)
    for number in range(2):
        users.apply([(CredentialKey(f"user-{number}", SCRAM), like_alice)])
    made = users.find(SCRAM, "nobody")
    assert made.look == like_alice.look
    assert made == users.find(SCRAM, "nobody")
    assert made.salt != users.find(SCRAM, "somebody").salt
    for number in range(2):
        users.apply([(CredentialKey(f"user-{number}", SCRAM), None)])
    assert users.find(SCRAM, "nobody").iterations == 8_192
