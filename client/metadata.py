"""Keeps what is known of the cluster's topics fresh: when somebody asks for it, and now and then.

Also notices topics that were subscribed to by name and are not there.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Collection

from client.core.backoff import Backoff
from client.core.errors import (
    AuthorizationError,
    BrokerUnreachableError,
    ConsumerError,
    UnknownTopicError,
)
from client.net.cluster import Cluster
from client.net.connection import DisconnectedError
from protocol.errors import ErrorCode
from protocol.lazy_dataclass import dataclass

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MetadataConfig:
    """Kafka's settings of these names, and how long a named topic may be missing (None: ever)."""

    metadata_max_age_ms: int = 300_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    missing_topic_timeout_ms: int | None = 15_000


class MetadataKeeper:
    """That of one consumer."""

    def __init__(
        self,
        cluster: Cluster,
        config: MetadataConfig,
        *,
        wanted_topics: Callable[[], Collection[str] | None],
        on_updated: Callable[[], None],
    ) -> None:
        """`wanted_topics`: those of interest now, None for all. `on_updated` is called after each
        answer, and when there is an error to be raised.
        """
        self.cluster = cluster
        self.is_answered = False
        """Whether there was an answer at all."""
        self._config = config
        self._wanted_topics = wanted_topics
        self._on_updated = on_updated
        self._is_wanted = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._error: ConsumerError | None = None
        self._expected: dict[str, float | None] = {}
        """Topics subscribed to by name: since when they are missing, None once they were seen."""

    def start(self) -> None:
        """Begin to refresh by itself."""
        self._task = asyncio.create_task(self._run(), name="keep metadata fresh")

    async def close(self) -> None:
        """Stop."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def want(self) -> None:
        """Something does not fit what is known: ask again, soon."""
        self._is_wanted.set()

    def expect(self, topics: Collection[str]) -> None:
        """These were subscribed to by name, and no others."""
        now_s = asyncio.get_running_loop().time()
        self._expected = {topic: self._expected.get(topic, now_s) for topic in topics}
        self._error = None
        if any(topic not in self.cluster.topics for topic in topics):
            self.want()

    def raise_error(self) -> None:
        """Raise what a poll has to know.

        Raises:
            UnknownTopicError: a topic has been missing for too long.
            AuthorizationError: one may not be read.
            AuthenticationError: we are not let in.
        """
        if self._error is not None:
            error, self._error = self._error, None
            self.want()
            raise error

    async def refresh(self) -> None:
        """Ask now, once.

        Raises:
            DisconnectedError, BrokerUnreachableError: nobody answers.
        """
        await self.cluster.refresh(self._wanted_topics())
        self.is_answered = True
        self._look_for_expected()
        self._on_updated()

    async def _run(self) -> None:
        config = self._config
        backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, random.random)
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._age_s):
                    await self._is_wanted.wait()
            self._is_wanted.clear()
            try:
                await self.refresh()
            except (DisconnectedError, BrokerUnreachableError) as error:
                # Once: polls find nothing meanwhile, and somebody has to say why.
                level = logging.DEBUG if backoff.failure_count else logging.WARNING
                logger.log(level, "%s", error)
                self._is_wanted.set()
                await asyncio.sleep(backoff.fail() / 1000)
            except ConsumerError as error:
                self._error = error
                self._on_updated()
                await asyncio.sleep(backoff.fail() / 1000)
            else:
                if backoff.failure_count:
                    logger.warning("the cluster answers again")
                backoff.succeed()
                # However often it is wanted: a cluster that changes is not asked without a pause.
                await asyncio.sleep(config.retry_backoff_ms / 1000)

    @property
    def _age_s(self) -> float:
        config = self._config
        if any(since is not None for since in self._expected.values()):
            return config.retry_backoff_max_ms / 1000
        return config.metadata_max_age_ms / 1000

    def _look_for_expected(self) -> None:
        now_s = asyncio.get_running_loop().time()
        timeout_ms = self._config.missing_topic_timeout_ms
        overdue: list[str] = []
        forbidden: list[str] = []
        for topic, since_s in self._expected.items():
            info = self.cluster.topics.get(topic)
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if info is None else info.error
            if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                forbidden.append(topic)
            elif code is ErrorCode.INVALID_TOPIC_EXCEPTION:
                overdue.append(topic)  # No waiting makes it one.
            elif code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                self._expected[topic] = None
            elif since_s is not None:
                is_overdue = timeout_ms is not None and now_s - since_s >= timeout_ms / 1000
                if is_overdue:
                    overdue.append(topic)
        if forbidden:
            self._error = AuthorizationError(
                f"not allowed to read {', '.join(sorted(forbidden))}; the principal needs READ and"
                " DESCRIBE on them",
                ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            )
        elif overdue:
            self._error = UnknownTopicError(
                f"no such topic: {', '.join(sorted(overdue))}; create it, check its name, or set"
                " missing_topic_timeout_ms to None to wait for it",
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            )
