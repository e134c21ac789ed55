"""The lines of a file of users: what they give, and which line is wrong."""

import base64
from collections.abc import Iterator

import pytest

from kohort.broker.core.security.sasl import Credential
from kohort.broker.security import users_file
from kohort.broker.security.errors import UsersFileError
from kohort.broker.security.users import CredentialKey, Users
from kohort.broker.security.users_file import credential_line, read_users
from kohort.broker.storage.metadata.store import MetadataStore
from kohort.protocol.scram import HASHES, keys_of, salted_password

SCRAM = "SCRAM-SHA-256"
OTHER = "SCRAM-SHA-512"


def credential(password: str = "secret", mechanism: str = SCRAM) -> Credential:
    salt = b"a salt of its own"
    salted = salted_password(HASHES[mechanism], password.encode(), salt, 4_096)
    return Credential(salt, keys_of(HASHES[mechanism], salted), 4_096)


ALICE = credential_line("alice", SCRAM, credential())
SALT, STORED, SERVER = ALICE.split("$")[2:]


@pytest.fixture
def users() -> Iterator[Users]:
    store = MetadataStore(None, new_cluster_id="c")
    made = Users(store)
    made.load_secret()
    yield made
    store.close()


def test_a_line_is_what_the_documents_say() -> None:
    """Written by hand, so that the writer and the reader cannot be wrong alike."""
    salt = base64.b64decode("QSXCR+Q6sek8bf92")
    # The keys for "pencil", computed from RFC 5802's formulas by another program's functions.
    salted = salted_password("sha256", b"pencil", salt, 4_096)
    stored, server = keys_of("sha256", salted)
    parts = [base64.b64encode(one).decode() for one in (salt, stored, server)]
    text = f"# users\n\nbob:SCRAM-SHA-256$4096${'$'.join(parts)}\r\n   \n"
    found = read_users(b"\xef\xbb\xbf" + text.encode())
    assert found == {CredentialKey("bob", SCRAM): Credential(salt, keys_of("sha256", salted), 4096)}


@pytest.mark.parametrize("name", ["a", "a:b", "a$b", "Jörg", " a ", "a\u2028b\x0bc", "x" * 255])
@pytest.mark.parametrize("mechanism", HASHES)
def test_a_name_is_read_as_it_was_written(name: str, mechanism: str) -> None:
    one = credential(mechanism=mechanism)
    line = credential_line(name, mechanism, one)
    assert read_users(f"{ALICE}\n{line}\n".encode())[CredentialKey(name, mechanism)] == one


@pytest.mark.parametrize("name", ["", "#a", "a\nb", "a\r\nb", "x" * 256])
def test_a_name_that_no_line_can_have_is_refused(name: str) -> None:
    with pytest.raises((ValueError, UsersFileError)):
        credential_line(name, SCRAM, credential())


WRONG = {
    "alice:hunter2": "it is not name:mechanism",
    "hunter2": "it is not name:mechanism",
    f"hunter2{ALICE.removeprefix('alice:')}": "it is not name:mechanism",
    f"{ALICE}$x": "it is not name:mechanism",
    ALICE.removeprefix("alice"): "the name is empty",
    "é" * 128 + ALICE: "the name has more than 255 bytes",
    ALICE.replace(SCRAM, "SCRAM-SHA-1"): "the mechanism is not one of SCRAM-SHA-256",
    ALICE.replace(SCRAM, "scram-sha-256"): "the mechanism is not one of SCRAM-SHA-256",
    ALICE.replace("$4096$", "$4095$"): "the iterations are not 4096 to 16384",
    ALICE.replace("$4096$", "$16385$"): "the iterations are not",
    ALICE.replace("$4096$", "$4_096$"): "the iterations are not",
    ALICE.replace("$4096$", "$٤٠٩٦$"): "the iterations are not",
    ALICE.replace("$4096$", f"${'9' * 5000}$"): "the iterations are not",
    ALICE.replace(SALT, "c2Fs" * 342): "the salt has more than 1024 bytes",
    ALICE.replace(SALT, "hunter2"): "the salt is not base64",
    ALICE.replace(STORED, "hunter2"): "the stored key is not base64",
    ALICE.replace(STORED, "aHVudGVyMg=="): "the stored key does not have the 32 bytes",
    ALICE.replace(SERVER, f"{SERVER} "): "the server key is not base64",
    ALICE.replace(SCRAM, OTHER): "the stored key does not have the 64 bytes",
    credential_line(
        "carol", SCRAM, credential("other")
    ): "the same user and mechanism as in line 2",
}


@pytest.mark.parametrize("line", WRONG)
def test_a_wrong_line_is_named_and_not_repeated(line: str) -> None:
    carol = credential_line("carol", SCRAM, credential())
    with pytest.raises(UsersFileError) as raised:
        read_users(f"# first\n{carol}\n\n{line}\n{ALICE}\n".encode())
    assert str(raised.value).startswith(f"line 4: {WRONG[line]}")
    for part in ("hunter2", "aHVudGVyMg", SALT, STORED, SERVER):
        assert part not in str(raised.value)


def test_bytes_that_are_no_text_and_too_many_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsersFileError, match="line 2: it is not UTF-8"):
        read_users(f"{ALICE}\n".encode() + b"\xff:x\n")
    monkeypatch.setattr(users_file, "USERS_MAX", 2)
    text = "\n".join(credential_line(name, SCRAM, credential()) for name in ("a", "b", "c"))
    with pytest.raises(UsersFileError, match="line 3: more than 2 users"):
        read_users(text.encode())
    with pytest.raises(UsersFileError, match="larger than 64 MiB"):
        read_users(bytes(users_file.BYTES_MAX + 1))


def test_a_stored_user_has_nothing_of_the_file(users: Users) -> None:
    told: list[str] = []
    users.on_change(told.append)
    given, other, stored = credential("a"), credential("b", OTHER), credential("c")
    first, second = CredentialKey("alice", SCRAM), CredentialKey("alice", OTHER)
    users.apply_given([(first, given), (second, other)])
    assert dict(users.credentials_of("alice")) == {1: given, 2: other}
    assert users.find(SCRAM, "alice") == given
    assert not users.is_stored(first)
    users.apply([(first, stored)])
    assert dict(users.credentials_of("alice")) == {1: stored}
    assert users.find(OTHER, "alice").is_made_up
    assert [one.credential for one in users.work_for("alice")] == [stored]
    # What is stored goes on counting, whatever the file says meanwhile.
    users.apply_given([(first, None), (second, credential("d", OTHER))])
    assert dict(users.credentials_of("alice")) == {1: stored}
    assert told == ["alice", "alice"]
    users.apply([(first, None)])
    assert list(dict(users.credentials_of("alice"))) == [2]
    assert users.names() == ["alice"]
    users.apply_given([(second, None)])
    assert users.names() == []
    assert len(users) == 0
    assert told == ["alice"] * 4
    # Nothing is left that strangers would be made up from.
    assert users.find(SCRAM, "x").look == users.find(OTHER, "x").look
