"""``--history`` of ``kohort watch``: opens the store, and waits while it cannot be written."""

import argparse
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import sleep
from typing import Any, Final, TypeAlias

from kohort.admin.cluster import Cluster
from kohort.admin.history import TOPIC as HISTORY_TOPIC
from kohort.cli.errors import CommandError, RefusedCommandError, UnavailableError, UsageError
from kohort.cli.options import consumer_settings
from kohort.cli.watch_rights import how_to_grant_topic
from kohort.insight.output import announce
from kohort.watch.follow import POLL_S
from kohort.watch.history_directory import HistoryDirectory
from kohort.watch.store import HistoryStore, StoreDeniedError, StoreError, StoreOutageError

__all__ = ["HISTORY_TOPIC", "Store", "stored"]

Json: TypeAlias = dict[str, Any]

ADDED_MAX: Final = 500
"""`add` flushes when this many records were added since the last flush."""


class Store:
    """The store of --history; without the option, does nothing. Its methods raise CommandError."""

    def __init__(self, options: argparse.Namespace, store: HistoryStore | None) -> None:
        self._options = options
        self._store = store
        self._added = 0
        self._trouble: str | None = None

    def add(self, record: Json) -> Json:
        """Add a record; return it with its sequence number. Flushes after ADDED_MAX records."""
        if self._store is None:
            return record
        record = self._store.offer(record)
        self._added += 1
        if self._added >= ADDED_MAX:
            self.flush()
        return record

    def flush(self) -> None:
        """Store the records; wait until that succeeds. If another watcher writes to the topic, wait
        only while the buffer is full.
        """
        self._added = 0
        while self._store is not None and not self._try(self._store):
            sleep(POLL_S)

    def _try(self, store: HistoryStore) -> bool:
        is_done = False
        try:
            store.flush()
            is_done, trouble = not store.is_full, store.trouble
        except StoreOutageError as error:
            trouble = str(error)
        except StoreError as error:
            raise _refusal(error, self._options) from error
        if trouble != self._trouble:
            self._trouble = trouble
            announce(trouble or "the history is stored again")
        return is_done


@contextmanager
def stored(options: argparse.Namespace, cluster: Cluster) -> Iterator[Store]:
    with ExitStack() as stack:
        try:
            store = _opened(options, cluster, stack)
        except StoreError as error:
            raise _refusal(error, options) from error
        except (OSError, ValueError) as error:
            raise UsageError(f"--history {options.history}: {error}") from error
        yield Store(options, store)


def _opened(options: argparse.Namespace, cluster: Cluster, stack: ExitStack) -> HistoryStore | None:
    if options.history is None:
        return None
    topic = _topic(options.history)
    if topic is None:
        directory = HistoryDirectory(Path(options.history), cluster.metadata([]).cluster_id)
        return stack.enter_context(directory)
    # These modules import the consumer, which a store in a directory does not need.
    from kohort.watch.history_topic import HistoryTopic  # noqa: PLC0415
    from kohort.watch.membership import Membership  # noqa: PLC0415

    if options.once or options.group is not None:
        # Do not join: as the elected writer, this watcher would block watchers of all groups.
        return HistoryTopic(cluster, topic, None, timeout_s=options.timeout)
    membership = Membership(topic, consumer_settings(options))
    store = HistoryTopic(cluster, topic, membership, timeout_s=options.timeout)
    stack.enter_context(membership)
    # Leave the group, so that another watcher can write at once.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    return store


def _topic(history: str) -> str | None:
    """Return the topic that --history names; None if it names a directory."""
    kind, _, name = history.partition(":")
    return (name or HISTORY_TOPIC) if kind == "topic" else None


def _refusal(error: StoreError, options: argparse.Namespace) -> CommandError:
    text = f"--history {options.history}: {error}"
    topic = _topic(options.history)
    if isinstance(error, StoreDeniedError) and topic is not None:
        return RefusedCommandError(f"{text}. {how_to_grant_topic(topic, options.bootstrap_server)}")
    return UnavailableError(text)
