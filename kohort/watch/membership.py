"""Decides which of several watchers writes to a topic: the member of their group that has the
topic's only partition. The others stand by.
"""

import asyncio
import logging
import threading
from collections.abc import Mapping
from typing import Any, Final, Self

from kohort.client.consumer.consumer import Consumer
from kohort.client.core.errors import AuthorizationError, ConsumerError
from kohort.client.group.listener import Partitions, RebalanceListener
from kohort.watch.core.left_out import OWN_GROUP

logger = logging.getLogger(__name__)

SESSION_MS: Final = 10_000
"""A watcher that was killed is replaced after this time."""

_HEARTBEAT_MS: Final = 3_000
_POLL_S: Final = 0.2
_PAUSE_S: Final = 1.0
_LEAVE_S: Final = 5.0


class Membership(RebalanceListener):
    """Joins the watchers' group in its own thread, and leaves it at the end. Commits no offsets and
    fetches no records.
    """

    def __init__(self, topic: str, settings: Mapping[str, Any]) -> None:
        """`settings`: the `Consumer` settings for the brokers' addresses and for security."""
        self.is_writer = False
        """Whether this watcher writes to the topic."""
        self.refusal: AuthorizationError | None = None
        """The error if the watcher is not authorized to join the group; it does not try again."""
        self.trouble: str | None = None
        """Why this watcher is not a member at present."""
        self._consumer: Consumer[Any, Any] | None = None
        self._topic = topic
        self._settings = {
            **settings,
            "client_id": OWN_GROUP,
            "group_id": OWN_GROUP,
            "enable_auto_commit": False,
            "session_timeout_ms": SESSION_MS,
            "heartbeat_interval_ms": _HEARTBEAT_MS,
            "missing_topic_timeout_ms": None,
        }
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="membership", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._is_over.set()
        self._thread.join(_LEAVE_S)

    def _run(self) -> None:
        asyncio.run(self._stay())

    async def _stay(self) -> None:
        """Stay in the group until `_is_over` is set, or joining is not authorized."""
        while not self._is_over.is_set():
            try:
                await self._join()
            except AuthorizationError as error:
                self.refusal = error
                return
            except ConsumerError as error:
                self.trouble = str(error)
                await asyncio.sleep(_PAUSE_S)
            finally:
                self.is_writer = False

    async def _join(self) -> None:
        async with Consumer(**self._settings) as self._consumer:
            self._consumer.subscribe([self._topic], listener=self)
            while not self._is_over.is_set():
                await self._consumer.poll(_POLL_S)
                self.trouble = None

    def on_assigned(self, partitions: Partitions) -> None:
        """Become the writer if the topic's only partition is assigned to this watcher."""
        assert self._consumer is not None, "polls"
        self._consumer.pause(*partitions)
        self.is_writer = bool(partitions)

    def on_revoked(self, partitions: Partitions) -> None:
        del partitions
        self.is_writer = False
