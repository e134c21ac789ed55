"""Users in the data directory of a broker that does not run."""

import base64
import os
import stat
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from kohort.admin.disabled_users import DISABLED, DISCONNECTED, item_of, user_of
from kohort.admin.users import MECHANISMS, Password, User
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
from kohort.cli.users.credentials import credential_of


class StoppedBroker:
    """The users of one data directory, which is locked."""

    def __init__(self, users: Users, store: MetadataStore) -> None:
        self._users = users
        self._store = store

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
        changes = [(CredentialKey(name, one.mechanism), credential_of(one)) for one in passwords]
        self._users.store_changes(changes)
        self._users.apply(changes)

    def remove(self, user: User) -> None:
        changes = [(CredentialKey(user.name, one), None) for one in user.iterations]
        self._users.store_changes(changes)
        self._users.apply(changes)

    def disabled(self) -> frozenset[str]:
        return frozenset(
            user_of(item) for items in self._items(DISABLED).values() for item in items
        )

    def disable(self, name: str, *, disconnects: bool) -> None:
        """Disable a user; nothing is open that could be disconnected. Raises RefusedCommandError.

        Wherever the setting has a value: which of them counts is for the broker's id to say.
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
        """What is set, by the broker's id that it is set for; empty for all."""
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
            # The broker would start without it.
            raise RefusedCommandError(str(error)) from None
        configs = self._store.broker_configs(broker)
        self._store.set_broker_configs(broker, {**configs, setting: text})


def is_data_directory(directory: str) -> bool:
    """Whether a broker, or this command, has made a store of metadata there."""
    return any((Path(directory) / name).exists() for name in (FILE_NAME, MIRROR_FILE_NAME))


@contextmanager
def stopped_broker(directory: str, *, makes: bool = True) -> Iterator[StoppedBroker]:
    """The users in a directory; `makes` says that it is made if it is none of a broker yet.

    Raises:
        UnavailableError: a broker runs on it, or it cannot be read, or is none.
    """
    path = Path(directory)
    if not makes and not is_data_directory(directory):
        raise UnavailableError(
            f"--data {directory}: this is no data directory of a broker, which has a {FILE_NAME} in"
            " it; log.dirs names it in the broker's settings"
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
        raise UnavailableError(f"{error}; ask it without --data") from error
    except (OSError, StorageError, MetadataError) as error:
        raise UnavailableError(f"--data {directory}: {error}") from error


def _hand_over(path: Path) -> None:
    """Give what root has made in a directory to the directory's account, whose broker could not
    read it otherwise.
    """
    if os.geteuid() != 0:
        return
    owner = path.stat()
    for made in os.scandir(path):
        found = made.stat(follow_symlinks=False)
        # Links could be that account's way to files that are not its own.
        if stat.S_ISREG(found.st_mode) and found.st_nlink == 1 and found.st_uid == 0:
            os.chown(made.path, owner.st_uid, owner.st_gid, follow_symlinks=False)
