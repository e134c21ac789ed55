"""Dead letters: records that cannot be handled are stored unchanged, with the failure in headers.

The headers follow those of Kafka Streams (KIP-1034) and Kafka Connect (KIP-298), with text values,
but with the prefix `__kohort.errors.`.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import traceback
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Self, TypeAlias

from kohort.client.config import ConsumerConfig
from kohort.client.core.errors import ConfigError, UnknownTopicError
from kohort.client.core.records import ConsumerRecord
from kohort.client.net.loop_tokens import token_of
from kohort.client.net.tls_files import RenewedContext
from kohort.client.net.tokens import TokenSource
from kohort.protocol.errors import ErrorCode

logger = logging.getLogger(__name__)

STOP_S: Final = 5.0

TOPIC_TIMEOUT_S: Final = 5.0
"""How long to wait for the metadata of the dead-letter topic. aiokafka itself would wait for
request_timeout_ms before it reports a missing topic."""

WRITE_TIMEOUT_S: Final = 10.0
"""Limit of one attempt to store a dead letter. aiokafka's idempotent producer would retry for as
long as the broker is away, and neither `health()` nor the end of a run would notice."""

PREFIX: Final = "__kohort.errors."

TEXT_LIMIT: Final = 1_000
"""Maximum length of an exception's message; the end is cut off."""

STACK_LIMIT: Final = 4_000
"""Maximum length of a stack trace; the beginning is cut off, because the end says where it
failed."""

EARLIER_HEADERS_LIMIT: Final = 64
"""Maximum number of headers of earlier failures; the latest are kept. Bounds the size of a record
that is dead-lettered repeatedly."""

REQUEST_BYTES_LIMIT: Final = 128 << 20
"""Request size limit for aiokafka's producer, so large that only the broker rejects records."""

Headers: TypeAlias = list[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True)
class DeadLetter:
    record: ConsumerRecord[bytes | None, bytes | None]
    error: Exception
    """The error of the last attempt; a DeserialisationError if the handler was not called."""
    attempts: int
    """How many attempts were made."""
    group_id: str | None
    failed_at_ms: int
    """When the last attempt failed, in milliseconds since the epoch."""

    def headers(self) -> Headers:
        """The record's own headers, then those about the failure, in UTF-8."""
        record = self.record
        own = {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": record.timestamp,
            "group": self.group_id or "",
            "exception": _name(self.error),
            "message": _cut(_text(self.error), TEXT_LIMIT),
            "attempts": self.attempts,
            "failed.at": self.failed_at_ms,
            "stacktrace": _stack(self.error),
        }
        next_offset = getattr(self.error, "next_offset", None)
        if next_offset is not None and next_offset > record.offset + 1:
            own["last.offset"] = next_offset - 1
        cause = self.error.__cause__
        if cause is not None:
            own["cause"] = _cut(f"{_name(cause)}: {_text(cause)}", TEXT_LIMIT)
        encoded = [
            (PREFIX + name, str(value).encode(errors="replace")) for name, value in own.items()
        ]
        return [*_earlier(record.headers), *encoded]


DeadLetterWriter: TypeAlias = Callable[[DeadLetter], Awaitable[object]]
"""Stores a dead letter durably before it returns. If it raises, it is called again later."""


class DeadLetterSink:
    async def start(self) -> None: ...

    async def write(self, letter: DeadLetter) -> None:
        """Store a dead letter; return when it is stored."""
        raise NotImplementedError

    async def stop(self) -> None: ...


class CallerSink(DeadLetterSink):
    """Calls the application's function, which manages its own resources."""

    def __init__(self, writer: DeadLetterWriter) -> None:
        self._writer = writer

    async def write(self, letter: DeadLetter) -> None:
        await self._writer(letter)


class TopicSink(DeadLetterSink):
    """Writes to a topic of the same cluster, with aiokafka's idempotent producer.

    Keys are kept, so records of one key stay in order. The timestamp is that of the failure, so
    that the topic's retention counts from then.
    """

    def __init__(self, topic: str, config: ConsumerConfig) -> None:
        """Create the sink. Raises a ConfigError if aiokafka is not installed."""
        self._topic = topic
        self._settings = _producer_settings(config)
        self._kind = _producer_class()
        self._producer: Any = None
        self._sent: dict[tuple[str, int, int], asyncio.Future[Any]] = {}
        """Dead letters that were not acknowledged yet, by topic, partition and offset of the
        record."""
        self._starting = asyncio.Lock()

    async def start(self) -> None:
        """Connect. Raises UnknownTopicError, or whatever aiokafka raises."""
        async with self._starting:
            if self._producer is None:
                self._producer = await self._started()

    async def _started(self) -> Any:  # noqa: ANN401 - aiokafka has no types.
        producer = self._kind(**self._settings)
        try:
            await producer.start()
            await wait_for_topic(producer, self._topic)
        except BaseException:
            await producer.stop()
            raise
        return producer

    async def write(self, letter: DeadLetter) -> None:
        """Store a dead letter; return when all in-sync replicas have it.

        Raises:
            TimeoutError: it has not been acknowledged within WRITE_TIMEOUT_S. aiokafka continues,
                and the next call waits for the same write.
            Exception: whatever aiokafka raises.
        """
        record = letter.record
        place = record.topic, record.partition, record.offset
        async with asyncio.timeout(WRITE_TIMEOUT_S):
            sent = self._sent.get(place)
            if sent is None:
                await self.start()
            producer = self._producer
            try:
                if sent is None:
                    sent = await self._send(letter)
                    self._sent[place] = sent
                    sent.add_done_callback(partial(self._answered, place))
                await asyncio.shield(sent)
            except Exception as error:
                is_lasting = not getattr(error, "retriable", False)
                if is_lasting and self._producer is producer:
                    # After a fatal error an idempotent producer rejects all further records.
                    await self.stop()
                raise

    async def _send(self, letter: DeadLetter) -> asyncio.Future[Any]:
        await wait_for_topic(self._producer, self._topic)
        record = letter.record
        sent: asyncio.Future[Any] = await self._producer.send(
            self._topic, value=record.value, key=record.key, headers=letter.headers()
        )
        return sent

    def _answered(self, place: tuple[str, int, int], sent: asyncio.Future[Any]) -> None:
        self._sent.pop(place, None)
        if not sent.cancelled():
            sent.exception()  # Raised by `write`, unless its time has passed.

    async def stop(self) -> None:
        """Disconnect, permanently or until the next write."""
        producer, self._producer = self._producer, None
        if producer is None:
            return
        try:
            # aiokafka first waits for pending writes, without a limit of its own.
            async with asyncio.timeout(STOP_S):
                await producer.stop()
        except Exception as error:  # noqa: BLE001 - nothing depends on it any more.
            logger.warning("closing the dead-letter producer failed: %r", error)


class TransactionSink(DeadLetterSink):
    """Writes dead letters with the transaction's producer, in the transaction in which the record
    was handled. The application closes the producer.
    """

    def __init__(self, topic: str, producer: Any) -> None:  # noqa: ANN401 - aiokafka has no types.
        self._topic = topic
        self._producer = producer

    async def start(self) -> None:
        """Check that the topic exists. Raises UnknownTopicError."""
        await wait_for_topic(self._producer, self._topic)

    async def write(self, letter: DeadLetter) -> None:
        """Add a dead letter to the transaction. Raises whatever aiokafka raises."""
        record = letter.record
        await self._producer.send_and_wait(
            self._topic, value=record.value, key=record.key, headers=letter.headers()
        )


async def wait_for_topic(producer: Any, topic: str) -> None:  # noqa: ANN401 - as above.
    """Wait for the topic's metadata. Raises UnknownTopicError if the topic does not exist and is
    not created.
    """
    try:
        async with asyncio.timeout(TOPIC_TIMEOUT_S):
            await producer.partitions_for(topic)
    except TimeoutError:
        raise UnknownTopicError(
            f"dead_letter: topic {topic} does not exist, and brokers do not create it",
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ) from None


def sink_for(
    wanted: str | DeadLetterWriter | None,
    config: ConsumerConfig,
    producer: Any = None,  # noqa: ANN401 - aiokafka has no types.
) -> DeadLetterSink | None:
    """Create the sink for the option `dead_letter` of `Consumer.run`.

    Raises:
        ConfigError: a topic is given, but no transactional producer, and aiokafka is missing.
    """
    if wanted is None:
        return None
    if not isinstance(wanted, str):
        return CallerSink(wanted)
    return TopicSink(wanted, config) if producer is None else TransactionSink(wanted, producer)


def _producer_class() -> Any:  # noqa: ANN401 - aiokafka has no types.
    try:
        from aiokafka import AIOKafkaProducer  # noqa: PLC0415 - optional, and slow to import.
    except ImportError:
        raise ConfigError(
            "dead_letter as a topic name needs aiokafka's producer: pip install"
            " 'kohort[dead-letters]', or pass a coroutine function that writes dead letters"
        ) from None
    return AIOKafkaProducer


def _provider(tokens: TokenSource, timeout_s: float) -> Any:  # noqa: ANN401 - as above.
    """Return the consumer's tokens as an aiokafka token provider."""
    from aiokafka.abc import AbstractTokenProvider  # noqa: PLC0415 - as above.

    class Shared(AbstractTokenProvider):  # type: ignore[misc]  # aiokafka has no types.
        def __init__(self) -> None:
            self._extensions: Mapping[str, str] = {}

        async def token(self) -> str:
            token = await token_of(tokens, timeout_s)
            self._extensions = token.extensions
            return token.value

        def extensions(self) -> Mapping[str, str]:
            return self._extensions

    return Shared()


class _FilesContext(ssl.SSLContext):
    """A context for aiokafka's producer, which keeps one context: each new connection uses the
    current certificate files, as the consumer's connections do. Files are checked, and if changed
    read, on the event loop.
    """

    _renewed: RenewedContext

    def __new__(cls, renewed: RenewedContext) -> Self:
        made = super().__new__(cls, ssl.PROTOCOL_TLS_CLIENT)
        made._renewed = renewed
        return made

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,  # noqa: FBT001, FBT002 - as in ssl.
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        """Create the TLS object of one connection; called by the event loop."""
        return self._renewed.context().wrap_bio(
            incoming, outgoing, server_side, server_hostname, session
        )


def _producer_settings(config: ConsumerConfig) -> dict[str, Any]:
    servers = config.bootstrap_servers
    settings: dict[str, Any] = {
        "bootstrap_servers": servers if isinstance(servers, str) else list(servers),
        "client_id": f"{config.client_id}-dead-letters",
        "request_timeout_ms": config.request_timeout_ms,
        "metadata_max_age_ms": config.metadata_max_age_ms,
        "security_protocol": config.security_protocol,
        "enable_idempotence": True,
        "max_request_size": REQUEST_BYTES_LIMIT,
    }
    if "SSL" in config.security_protocol:
        renewed = config.security.files
        settings["ssl_context"] = (
            config.security.tls_context if renewed is None else _FilesContext(renewed)
        )
    if config.security_protocol.startswith("SASL"):
        for name in ("sasl_mechanism", "sasl_plain_username", "sasl_plain_password"):
            settings[name] = getattr(config, name)
    if (tokens := config.security.tokens) is not None:
        settings["sasl_oauth_token_provider"] = _provider(tokens, config.request_timeout_ms / 1000)
    return settings


def _earlier(headers: tuple[tuple[str, bytes | None], ...]) -> Headers:
    """Return the record's headers without stack traces of earlier failures, limited in number."""
    stack = PREFIX + "stacktrace"
    kept = [header for header in headers if header[0] != stack]
    too_many = sum(name.startswith(PREFIX) for name, _ in kept) - EARLIER_HEADERS_LIMIT
    limited: Headers = []
    for header in kept:
        if too_many > 0 and header[0].startswith(PREFIX):
            too_many -= 1
        else:
            limited.append(header)
    return limited


def _name(error: BaseException) -> str:
    kind = type(error)
    if kind.__module__ == "builtins":
        return kind.__qualname__
    return f"{kind.__module__}.{kind.__qualname__}"


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - an exception of the application's that cannot say what it is.
        return "(its message could not be formatted)"


def _stack(error: BaseException) -> str:
    try:
        text = "".join(traceback.format_exception(error, limit=-20))
    except Exception:  # noqa: BLE001 - as above.
        return ""
    return text if len(text) <= STACK_LIMIT else "..." + text[3 - STACK_LIMIT :]


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 3] + "..."
