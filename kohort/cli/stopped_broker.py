"""Users in the data directory of a stopped broker."""

import base64
import os
import stat
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from kohort.admin.users import DISABLED, DISCONNECTED, MECHANISMS, Password, User, item_of, user_of
from kohort.broker.config.current import known_setting
from kohort.broker.config.settings import InvalidValueError
from kohort.broker.security.users import CredentialKey, Users
from kohort.broker.storage.errors import DataDirectoryLockedError, StorageError
from kohort.broker.storage.filesystem import make_private_directory
from kohort.broker.storage.lock import DataDirectoryLock
from kohort.broker.storage.metadata.store import (
    BROKER_CONFIGS,
    FILE_NAME,
    MIRROR_FILE_NAME,
    MetadataError,
    MetadataStore,
)
from kohort.cli.errors import RefusedCommandError, UnavailableError
from kohort.cli.users import credential_of


class StoppedBroker:
    """Reads and changes the users in a stopped broker's data directory, which the caller locks."""

    def __init__(self, users: Users, store: MetadataStore) -> None:
        self._users = users
        self._store = store

    def users(self, names: Sequence[str] = ()) -> list[User]:
        mechanisms = {number: name for name, number in MECHANISMS.items()}
        users = []
        for name in names or self._users.names():
            iterations = {
                mechanisms[number]: credential.iterations
                for number, credential in self._users.credentials_of(name)
            }
            if iterations:
                users.append(User(name, iterations))
        return sorted(users)

    def set_password(self, name: str, passwords: Sequence[Password]) -> None:
        changes = [
            (CredentialKey(name, password.mechanism), credential_of(password))
            for password in passwords
        ]
        self._users.store_changes(changes)
        self._users.apply(changes)

    def remove(self, user: User) -> None:
        changes = [(CredentialKey(user.name, mechanism), None) for mechanism in user.iterations]
        self._users.store_changes(changes)
        self._users.apply(changes)

    def disabled(self) -> frozenset[str]:
        return frozenset(
            user_of(item) for items in self._items(DISABLED).values() for item in items
        )

    def disable(self, name: str, *, disconnects: bool) -> None:
        """Disable a user in all stored values of kohort.users.disabled: any may be in force.

        `disconnects` has no effect: a stopped broker has no connections. Raises
        RefusedCommandError.
        """
        del disconnects
        for broker, items in (self._items(DISABLED) or {"": []}).items():
            if name not in map(user_of, items):
                self._set(broker, DISABLED, [*items, item_of(name)])

    def enable(self, name: str) -> bool:
        was_disabled = name in self.disabled()
        for setting in (DISABLED, DISCONNECTED):
            for broker, items in self._items(setting).items():
                kept = [item for item in items if user_of(item) != name]
                if kept != items:
                    self._set(broker, setting, kept)
        return was_disabled

    def _items(self, setting: str) -> dict[str, list[str]]:
        """Values of a dynamic setting by broker id (empty for the cluster default)."""
        brokers = [
            key.removeprefix(BROKER_CONFIGS) for key in self._store.properties(BROKER_CONFIGS)
        ]
        texts = {broker: self._store.broker_configs(broker).get(setting) for broker in brokers}
        return {
            broker: [item.strip() for item in text.split(",") if item.strip()]
            for broker, text in texts.items()
            if text is not None
        }

    def _set(self, broker: str, setting: str, items: Sequence[str]) -> None:
        text = ",".join(items)
        try:
            known_setting(setting).parse(text)
        except InvalidValueError as error:
            # The broker would ignore the invalid value at its start.
            raise RefusedCommandError(str(error)) from None
        configs = self._store.broker_configs(broker)
        self._store.set_broker_configs(broker, {**configs, setting: text})


def is_data_directory(directory: str) -> bool:
    """Whether the directory has a metadata store, made by a broker or by this command."""
    return any((Path(directory) / name).exists() for name in (FILE_NAME, MIRROR_FILE_NAME))


@contextmanager
def stopped_broker(directory: str, *, creates: bool = True) -> Iterator[StoppedBroker]:
    """Open the users of a stopped broker's data directory; with `creates`, create it if missing.

    Raises:
        UnavailableError: a broker is running on it, it cannot be read, or it is not a data
            directory.
    """
    path = Path(directory)
    if not creates and not is_data_directory(directory):
        raise UnavailableError(
            f"--data {directory}: not a data directory of a broker, which contains {FILE_NAME}; see"
            " log.dirs in the broker's settings"
        )
    try:
        make_private_directory(path)
        with DataDirectoryLock(path):
            cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
            store = MetadataStore(path, new_cluster_id=cluster_id)
            try:
                yield StoppedBroker(Users(store), store)
            finally:
                store.close()
                _hand_over(path)
    except DataDirectoryLockedError as error:
        raise UnavailableError(f"{error}; omit --data to use the running broker") from error
    except (OSError, StorageError, MetadataError) as error:
        raise UnavailableError(f"--data {directory}: {error}") from error


def _hand_over(path: Path) -> None:
    """Give files made by root to the directory's owner, so that its broker can read them."""
    if os.geteuid() != 0:
        return
    owner = path.stat()
    for entry in os.scandir(path):
        status = entry.stat(follow_symlinks=False)
        # No links: through one, the owner could take over a file outside of the directory.
        if stat.S_ISREG(status.st_mode) and status.st_nlink == 1 and status.st_uid == 0:
            os.chown(entry.path, owner.st_uid, owner.st_gid, follow_symlinks=False)
