"""The users and their SCRAM credentials, in memory and in the metadata store.

Changes are stored before they take effect. PLAIN uses the SCRAM credentials as well. A file may
contain more users; if a user has a stored credential, its credentials in the file are ignored:
otherwise an old password could stay valid for another mechanism.

The module of credentials is imported with the first credential, because that takes 1 ms.
"""

import base64
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from kohort.broker.storage.errors import StorageError
from kohort.broker.storage.metadata.store import MetadataStore
from kohort.protocol.scram import HASHES, ITERATIONS_MIN, Keys

if TYPE_CHECKING:
    from kohort.broker.core.security.sasl import Credential, VisibleProperties

USERS_MAX: Final = 100_000
MECHANISMS: Final = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
"""Mechanisms by their numbers in the protocol."""

_SECRET: Final = "installation_secret"  # noqa: S105 - a name, not a secret.
USER: Final = "user:"
"""Name prefix of the properties that are credentials."""
_SECRET_BYTES: Final = 32


class CredentialKey(NamedTuple):
    user: str
    mechanism: str


Change: TypeAlias = "tuple[CredentialKey, Credential | None]"


class Users:
    """The users. Storing changes blocks, and must not run concurrently with other writes of the
    metadata store.
    """

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._stored = {
            key_of(name): read_credential(text) for name, text in store.properties(USER).items()
        }
        self._given: dict[CredentialKey, Credential] = {}
        """Credentials from the users file."""
        self._credentials = dict(self._stored)
        """Effective credentials, stored or from the file."""
        self._listeners: list[Callable[[str], None]] = []
        self._secret = b""
        self._looks: dict[str, Counter[VisibleProperties]] = {
            mechanism: Counter() for mechanism in HASHES
        }
        """By mechanism: number of credentials with each set of properties that clients can see."""
        self._first: dict[str, str] = {}
        """The mechanism of each user's first credential, against which passwords are checked."""
        for user in {key.user for key in self._credentials}:
            self._note_first(user)
        self._usual: _Usual | None = None
        for key, credential in self._credentials.items():
            self._looks[key.mechanism][credential.look] += 1

    def load_secret(self) -> None:
        """Load or create the secret from which credentials of unknown users are derived. Required
        by `find` and `work_for`. Blocks on the disk.
        """
        secret = self._store.properties(_SECRET).get(_SECRET)
        if secret is None:
            secret = os.urandom(_SECRET_BYTES).hex()
            # On a full disk the secret is used for this run only.
            with suppress(StorageError):
                self._store.set_properties({_SECRET: secret})
        self._secret = bytes.fromhex(secret)

    def on_change(self, listener: Callable[[str], None]) -> None:
        """Register a function to be called with the user's name when credentials change."""
        self._listeners.append(listener)

    def __len__(self) -> int:
        return len(self._first)

    def names(self) -> list[str]:
        return sorted(self._first)

    def credentials_of(self, user: str) -> "Iterator[tuple[int, Credential]]":
        """Yield each credential of a user with the number of its mechanism."""
        for number, mechanism in MECHANISMS.items():
            found = self._credentials.get(CredentialKey(user, mechanism))
            if found is not None:
                yield number, found

    def get(self, user: str, mechanism: str) -> "Credential | None":
        """Return the effective credential, stored or from the file, or None."""
        return self._credentials.get(CredentialKey(user, mechanism))

    def is_stored(self, key: CredentialKey) -> bool:
        """Whether the credential is stored, and so can be removed, unlike those of the file."""
        return key in self._stored

    def find(self, mechanism: str, user: str) -> "Credential":
        """Return the user's credential for a mechanism, or else one derived from the name."""
        from kohort.broker.core.security.sasl import made_up  # noqa: PLC0415

        assert self._secret, "not loaded"
        # Derived for known users as well, so that the time does not reveal which users exist.
        made = made_up(mechanism, user, self._secret, self._found_usual().looks[mechanism])
        return self._credentials.get(CredentialKey(user, mechanism), made)

    def work_for(self, user: str) -> "list[PasswordWork]":
        """Return the hashes to compute for a plain-text password.

        Only the user's first credential counts. The total work is the same for every user,
        whatever its mechanisms and iterations, so that the time does not reveal which users exist.
        """
        decides = self._first.get(user)
        work = []
        for mechanism, rounds in self._found_usual().rounds.items():
            credential = self.find(mechanism, user)
            if mechanism != decides:
                credential = credential._replace(is_made_up=True)
            work.append(PasswordWork(mechanism, credential, rounds))
        return work

    def store_changes(self, changes: Iterable[Change]) -> None:
        """Make changes durable; the event loop then calls `apply`. Raises StorageError."""
        self._store.set_properties({property_of(key): credential_text(new) for key, new in changes})

    def apply(self, changes: Iterable[Change]) -> None:
        self._apply(self._stored, changes)

    def apply_given(self, changes: Iterable[Change]) -> None:
        self._apply(self._given, changes)

    def _apply(self, source: "dict[CredentialKey, Credential]", changes: Iterable[Change]) -> None:
        users: dict[str, None] = {}
        for key, new in changes:
            users[key.user] = None
            if new is None:
                source.pop(key, None)
            else:
                source[key] = new
        for user in users:
            self._settle(user)
        self._usual = None

    def _settle(self, user: str) -> None:
        """Determine a user's effective credentials; call the listeners if they have changed."""
        keys = [CredentialKey(user, mechanism) for mechanism in HASHES]
        source = self._stored if any(key in self._stored for key in keys) else self._given
        is_other = False
        for key in keys:
            before, now = self._credentials.pop(key, None), source.get(key)
            is_other |= before != now
            looks = self._looks[key.mechanism]
            if before is not None:
                looks[before.look] -= 1
                if not looks[before.look]:
                    del looks[before.look]
            if now is not None:
                self._credentials[key] = now
                looks[now.look] += 1
        self._note_first(user)
        if is_other:
            for listener in self._listeners:
                listener(user)

    def _found_usual(self) -> "_Usual":
        """Return the properties of unknown users' credentials, cached until a user changes."""
        if self._usual is None:
            from kohort.broker.core.security.sasl import USUAL_PROPERTIES  # noqa: PLC0415

            looks = {
                mechanism: max(found, key=found.__getitem__, default=USUAL_PROPERTIES)
                for mechanism, found in self._looks.items()
            }
            rounds = {
                mechanism: max((look.iterations for look in found), default=ITERATIONS_MIN)
                for mechanism, found in self._looks.items()
            }
            decide = set(self._first.values()) or {next(iter(HASHES))}
            self._usual = _Usual(looks, {name: rounds[name] for name in HASHES if name in decide})
        return self._usual

    def _note_first(self, user: str) -> None:
        self._first.pop(user, None)
        for mechanism in HASHES:
            if CredentialKey(user, mechanism) in self._credentials:
                self._first[user] = mechanism
                return


class PasswordWork(NamedTuple):
    """Computes one hash of a password. If `credential.is_made_up`, no password matches."""

    mechanism: str
    credential: "Credential"
    rounds: int
    """Iterations that are always computed: the maximum of all credentials of the mechanism."""


class _Usual(NamedTuple):
    """Properties of the credentials derived for unknown users."""

    looks: "Mapping[str, VisibleProperties]"
    """The most frequent properties that unauthenticated clients see, by mechanism."""
    rounds: Mapping[str, int]
    """The most iterations of any credential, for each mechanism with which some user's passwords
    are checked."""


def property_of(key: CredentialKey) -> str:
    return f"{USER}{key.mechanism}:{key.user}"


def key_of(name: str) -> CredentialKey:
    mechanism, _, user = name.removeprefix(USER).partition(":")
    return CredentialKey(user, mechanism)


def credential_text(credential: "Credential | None") -> str | None:
    """Return the property value that stores a credential; None without one."""
    if credential is None:
        return None
    return json.dumps(
        {
            "salt": base64.b64encode(credential.salt).decode(),
            "stored_key": base64.b64encode(credential.keys.stored_key).decode(),
            "server_key": base64.b64encode(credential.keys.server_key).decode(),
            "iterations": credential.iterations,
        }
    )


def read_credential(text: str) -> "Credential":
    from kohort.broker.core.security.sasl import Credential  # noqa: PLC0415

    found = json.loads(text)
    keys = Keys(base64.b64decode(found["stored_key"]), base64.b64decode(found["server_key"]))
    return Credential(base64.b64decode(found["salt"]), keys, found["iterations"])
