"""Refreshes topic metadata, on demand and periodically, and detects missing topics."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Collection
from typing import NamedTuple

from kohort.client.clock import loop_ms
from kohort.client.core.backoff import Backoff
from kohort.client.core.errors import (
    BrokerUnreachableError,
    ConsumerError,
)
from kohort.client.core.partitions import TopicPartition
from kohort.client.core.topics import ExpectedTopics
from kohort.client.net.cluster import Cluster
from kohort.client.net.errors import DisconnectedError

logger = logging.getLogger(__name__)


class MetadataConfig(NamedTuple):
    """The consumer's settings of the same names; `ConsumerConfig` explains them."""

    metadata_max_age_ms: int = 300_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    missing_topic_timeout_ms: int | None = 15_000


class MetadataKeeper:
    def __init__(
        self,
        cluster: Cluster,
        config: MetadataConfig,
        *,
        wanted_topics: Callable[[], Collection[str] | None],
        on_updated: Callable[[], None],
    ) -> None:
        """`wanted_topics` returns the topics of interest, None for all. `on_updated` is called
        after each response, and when there is an error for polls to raise.
        """
        self.cluster = cluster
        self.is_answered = False
        """Whether any metadata response has arrived yet."""
        self._config = config
        self._wanted_topics = wanted_topics
        self._on_updated = on_updated
        self._is_wanted = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._error: ConsumerError | None = None
        self._expected = ExpectedTopics(config.missing_topic_timeout_ms)

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="keep metadata fresh")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def want(self) -> None:
        """Request a refresh soon, because the known metadata has proved outdated."""
        self._is_wanted.set()

    def expect(self, topics: Collection[str], partitions: Collection[TopicPartition] = ()) -> None:
        """Set the subscribed topics and the assigned partitions, replacing earlier ones."""
        self._expected.expect(topics, partitions, loop_ms())
        self._error = None
        names = {*topics, *(partition.topic for partition in partitions)}
        if any(topic not in self.cluster.topics for topic in names):
            self.want()
        else:
            self._look_for_expected()
            if self._expected.is_waiting:
                self.want()

    def missing(self, now_ms: int) -> dict[str, float]:
        """The seconds for which expected topics and partitions have been missing, by name."""
        return self._expected.missing(now_ms)

    def raise_error(self) -> None:
        """Raise the pending error that the application must see, if any.

        Raises:
            UnknownTopicError: a topic, or an assigned partition, has been missing for too long.
            AuthorizationError: reading a topic is not allowed.
            AuthenticationError: the broker rejects the credentials.
        """
        if self._error is not None:
            error, self._error = self._error, None
            self.want()
            raise error

    async def refresh(self) -> None:
        """Refresh once, now.

        Raises:
            DisconnectedError, BrokerUnreachableError: no broker answers.
        """
        await self.cluster.refresh(self._wanted_topics())
        self.is_answered = True
        self._look_for_expected()
        self._on_updated()

    async def _run(self) -> None:
        config = self._config
        backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, random.random)
        logged: set[type[ConsumerError]] = set()
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._age_s):
                    await self._is_wanted.wait()
            self._is_wanted.clear()
            try:
                await self.refresh()
            except (DisconnectedError, BrokerUnreachableError) as error:
                # Polls return nothing while no broker answers. Warn why, once per kind of error.
                level = logging.DEBUG if type(error) in logged else logging.WARNING
                logged.add(type(error))
                logger.log(level, "%s", error)
                self._is_wanted.set()
                await asyncio.sleep(backoff.fail() / 1000)
            except ConsumerError as error:
                self._error = error
                self._on_updated()
                await asyncio.sleep(backoff.fail() / 1000)
            else:
                if backoff.failure_count:
                    logger.warning("the cluster is reachable again")
                backoff.succeed()
                logged.clear()
                # Pause after each refresh, so that a cluster whose leaders change is not flooded
                # with requests.
                await asyncio.sleep(config.retry_backoff_ms / 1000)

    @property
    def _age_s(self) -> float:
        config = self._config
        if self._expected.is_waiting:
            return config.retry_backoff_max_ms / 1000
        return config.metadata_max_age_ms / 1000

    def _look_for_expected(self) -> None:
        missed, error = self._expected.compare(self.cluster.topics, loop_ms())
        if missed:
            logger.warning(
                "%s: no such topic or partition; waiting for it to be created", ", ".join(missed)
            )
        if error is not None:
            self._error = error
