"""Users in the data directory of a broker that does not run."""

import base64
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from kohort.broker.core.security.scram import Credential
from kohort.broker.security.users import CredentialKey, Users
from kohort.broker.storage.errors import DataDirectoryLockedError, StorageError
from kohort.broker.storage.lock import DataDirectoryLock
from kohort.broker.storage.metadata.store import MetadataError, MetadataStore
from kohort.cli.errors import UnavailableError
from kohort.protocol.scram import HASHES, keys_of
from kohort.wire.users import MECHANISMS, Password, User


class StoppedBroker:
    """The users of one data directory, which is locked."""

    def __init__(self, users: Users) -> None:
        self._users = users

    def users(self, names: Sequence[str] = ()) -> list[User]:
        of_number = {number: name for name, number in MECHANISMS.items()}
        found = []
        for name in names or self._users.names():
            known = {
                of_number[number]: one.iterations
                for number, one in self._users.credentials_of(name)
            }
            if known:
                found.append(User(name, known))
        return sorted(found)

    def set_password(self, name: str, passwords: Sequence[Password]) -> None:
        changes = [(CredentialKey(name, one.mechanism), _credential(one)) for one in passwords]
        self._users.store_changes(changes)
        self._users.apply(changes)

    def remove(self, user: User) -> None:
        changes = [(CredentialKey(user.name, one), None) for one in user.iterations]
        self._users.store_changes(changes)
        self._users.apply(changes)


@contextmanager
def stopped_broker(directory: str) -> Iterator[StoppedBroker]:
    """The users in a directory, which is made if it is not there.

    Raises:
        UnavailableError: a broker runs on it, or it cannot be read.
    """
    path = Path(directory)
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        with DataDirectoryLock(path):
            cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
            store = MetadataStore(path, new_cluster_id=cluster_id)
            try:
                yield StoppedBroker(Users(store))
            finally:
                store.close()
    except DataDirectoryLockedError as error:
        raise UnavailableError(f"{error}; ask it without --data") from error
    except (OSError, StorageError, MetadataError) as error:
        raise UnavailableError(f"--data {directory}: {error}") from error


def _credential(password: Password) -> Credential:
    keys = keys_of(HASHES[password.mechanism], password.salted)
    return Credential(password.salt, keys, password.iterations)
