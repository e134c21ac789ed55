"""ShareFetch (key 78): acknowledge records, and acquire others (KIP-932).

v1-2. v2 adds acquire modes (KIP-1206) and renewed locks (KIP-1222). Acknowledgements are applied
and durable before records are acquired, so that released records may be in the same response, which
contains only the partitions with acquired records, acknowledgements or an error, and those that
this request has added to the session.
"""

from collections.abc import Hashable, Iterable
from typing import ClassVar, Final, NamedTuple, TypeAlias

from kohort.broker.core.delayed_operation import Completion, DelayedOperation
from kohort.broker.dispatch.context import RequestContext
from kohort.broker.dispatch.registry import handles
from kohort.broker.handlers.shared import share
from kohort.broker.runtime.deferred import Deferred
from kohort.broker.share.acknowledge import Acknowledging
from kohort.broker.share.fetch import FetchedPartition, FetchTerms, ShareFetch
from kohort.groups.share.sessions import NEW_EPOCH, SessionPartition, ShareSession
from kohort.groups.share.window import AcquireMode
from kohort.groups.steps import Steps
from kohort.protocol.errors import NO_ERROR, ErrorCode, KafkaError
from kohort.protocol.messages.share_fetch import (
    AcquiredRecords,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)

STRANGE_PARTITIONS_MAX: Final = 1_000
"""Partitions that a session may have in addition to the number of existing partitions."""

_Answer: TypeAlias = "ShareFetchResponse | Deferred[ShareFetchResponse]"

_MODES: Final = frozenset(AcquireMode)


@handles(ShareFetchRequest, versions="1-2", long_bytes=share.LONG_BYTES)
def share_fetch(ctx: RequestContext, request: ShareFetchRequest) -> Steps[_Answer]:
    ctx.connection.active_as = ctx.header.client_id
    error = share.request_error(ctx, request.group_id, request.member_id)
    if not error and (
        request.share_acquire_mode not in _MODES
        or (
            request.is_renew_ack
            and (
                request.max_bytes or request.min_bytes or request.max_records or request.max_wait_ms
            )
        )
    ):
        error = ErrorCode.INVALID_REQUEST
    if error:
        return _answer(error, 0, [])
    assert request.group_id is not None
    assert request.member_id is not None
    named = yield from share.collected(request.topics)
    if not ctx.connection.is_open:
        # The client has disconnected, so nothing would close a session that is opened now.
        return _answer(ErrorCode.SHARE_SESSION_NOT_FOUND, 0, [])
    if _names_too_many(ctx, request, len(named)):
        return _answer(ErrorCode.INVALID_REQUEST, 0, [])
    try:
        session = ctx.broker.share_delivery.accept_fetch(
            request.group_id,
            request.member_id,
            request.share_session_epoch,
            ctx.connection,
            acknowledges=any(named.values()),
        )
    except KafkaError as refused:
        return _refused(ctx, request, refused.code)
    ctx.connection.opened_share_session = True
    return (yield from _ShareFetchCall(ctx, request, session, named).begin())


def _names_too_many(ctx: RequestContext, request: ShareFetchRequest, count: int) -> bool:
    """Whether a session would have many more partitions than exist. A session keeps partitions
    until the client forgets them, and every response includes those that do not exist.
    """
    known = ctx.broker.share_delivery.sessions.get(request.group_id, request.member_id)
    if known is not None and request.share_session_epoch != NEW_EPOCH:
        count += len(known.partitions)
    # Twice the number, because partitions that are in the session and in the request count twice.
    return count > 2 * ctx.broker.topics.catalog.partition_count + STRANGE_PARTITIONS_MAX


def _refused(
    ctx: RequestContext, request: ShareFetchRequest, error: ErrorCode
) -> ShareFetchResponse | Deferred[ShareFetchResponse]:
    response = _answer(error, 0, [])
    if error is not ErrorCode.SHARE_SESSION_LIMIT_REACHED or request.max_wait_ms <= 0:
        return response
    # Delayed, because the client retries at once.
    operation = _DelayedRefusal(response, owner=ctx.connection)
    deadline_ms = ctx.broker.clock.monotonic_ms() + request.max_wait_ms
    ctx.broker.purgatory.try_complete_else_watch(operation, (), deadline_ms)
    return operation.answer


class _DelayedRefusal(DelayedOperation):
    """An error response that is sent after the maximum wait time of its request."""

    __slots__ = ("_response", "answer")

    kind: ClassVar[str] = "ShareFetch"

    def __init__(self, response: ShareFetchResponse, *, owner: Hashable) -> None:
        super().__init__(owner=owner)
        self._response = response
        self.answer: Deferred[ShareFetchResponse] = Deferred()

    def try_complete(self, key: Hashable | None = None) -> bool:
        del key
        return False

    def on_complete(self, completion: Completion) -> None:
        del completion
        if not self.answer.is_done:
            self.answer.set_result(self._response)

    def on_failed(self, error: Exception) -> None:
        if not self.answer.is_done:
            self.answer.set_exception(error)


class _LocatedPartitions(NamedTuple):
    """Cached lookups of a session's partitions, valid while all of `valid_for` is current."""

    valid_for: tuple[object, object]
    """Versions of the topics and of the share-partitions, and the key of the permissions."""
    by_key: dict[SessionPartition, share.Located]


class _ShareFetchCall:
    """One ShareFetch whose session has been accepted."""

    def __init__(
        self,
        ctx: RequestContext,
        request: ShareFetchRequest,
        session: ShareSession,
        named: share.Acknowledgements,
    ) -> None:
        self._ctx = ctx
        self._request = request
        self._session = session
        # Copied, because later requests may change or end the session before this one is answered.
        self._epoch = session.epoch
        self._is_final = session.is_closed
        self._named = named
        self._group_id = session.group_id
        self._permissions_key = ctx.permissions_key
        self._fetched: list[FetchedPartition] = []
        self._answer: Deferred[ShareFetchResponse] = Deferred()

    def begin(self) -> Steps[_Answer]:
        """Apply the acknowledgements; once these are durable, acquire records."""
        session, named = self._session, self._named
        acknowledging = Acknowledging(self._ctx.broker.share_delivery.partitions, session.member_id)
        if self._is_final:
            by_key = yield from self._locate([key for key in named if named[key]], set())
        else:
            new = session.update(
                named,
                [
                    SessionPartition(topic.topic_id, partition)
                    for topic in self._request.forgotten_topics_data
                    for partition in topic.partitions
                ],
            )
            session.due |= new
            forgotten = [key for key in named if named[key] and key not in session.partitions]
            rotated = session.rotated(self._request.share_session_epoch)
            by_key = yield from self._locate([*rotated, *forgotten], new)
        for key, batches in named.items():
            if batches:
                self._acknowledge(acknowledging, key, by_key[key])
                yield
        if self._is_final:
            acknowledging.release_all(self._group_id, session.partitions)
        fetch = self._new_fetch()
        acknowledging.store(lambda: self._on_stored(acknowledging, fetch))
        return self._answer.result() if self._answer.is_done else self._answer

    def _locate(
        self, keys: Iterable[SessionPartition], new: set[SessionPartition]
    ) -> Steps[dict[SessionPartition, FetchedPartition]]:
        """Look up the partitions; the request has added those in `new` to the session."""
        located = self._located_before()
        by_key = {}
        for key in keys:
            fetched = by_key[key] = FetchedPartition(key.topic_id, key.partition)
            found = located.get(key)
            if found is None or (found.log is not None and found.log.failure is not None):
                found = located[key] = self._located(key, is_new=key in new)
                yield
            fetched.share, fetched.log, fetched.error, fetched.message = found
        self._fetched = list(by_key.values())
        return by_key

    def _located_before(self) -> dict[SessionPartition, share.Located]:
        """Return the session's cached partitions; an empty cache if they are outdated."""
        broker, session = self._ctx.broker, self._session
        version = broker.topics.catalog.version, broker.share_delivery.partitions.version
        cached = session.located
        if isinstance(cached, _LocatedPartitions) and cached.valid_for == (
            version,
            self._permissions_key,
        ):
            return cached.by_key
        new = session.located = _LocatedPartitions((version, self._permissions_key), {})
        return new.by_key

    def _located(self, key: SessionPartition, *, is_new: bool) -> share.Located:
        session = self._session
        was_known = not is_new and key not in session.unknown
        located = share.locate(self._ctx, self._group_id, key, was_in_session=was_known)
        if located.error is ErrorCode.UNKNOWN_TOPIC_ID and key in session.partitions:
            session.unknown.add(key)
        return located

    def _acknowledge(
        self,
        acknowledging: Acknowledging,
        key: SessionPartition,
        fetched: FetchedPartition,
    ) -> None:
        fetched.was_acknowledged = True
        if fetched.share is None:
            fetched.acknowledgement = share.acknowledgement_error(fetched.error, fetched.message)
        else:
            fetched.acknowledgement = share.apply(
                self._ctx,
                acknowledging,
                fetched.share,
                self._named[key],
                is_renew_ack=self._request.is_renew_ack,
                releases=self._session.is_closed and key in self._session.partitions,
            )

    def _new_fetch(self) -> ShareFetch | None:
        """Return the fetch that follows the acknowledgements; None if nothing is fetched."""
        ctx, request = self._ctx, self._request
        if self._is_final or request.is_renew_ack:
            return None
        in_session = self._session.partitions
        terms = FetchTerms(
            max_wait_ms=max(request.max_wait_ms, 0),
            min_bytes=max(request.min_bytes, 0),
            max_bytes=min(max(request.max_bytes, 0), ctx.broker.config.fetch_max_bytes),
            max_records=max(request.max_records, 0),
            batch_size=request.batch_size,
            response_bytes=ctx.broker.config.fetch_max_bytes,
            mode=AcquireMode(request.share_acquire_mode),
        )
        quotas = ctx.broker.quotas
        if quotas is not None and quotas.is_limiting:
            at_once_bytes = quotas.at_once(ctx.connection, ctx.header.client_id)
            terms = terms._replace(
                max_bytes=min(terms.max_bytes, at_once_bytes),
                min_bytes=min(terms.min_bytes, at_once_bytes),
            )
        return ShareFetch(
            ctx.broker.share_delivery.reader,
            self._session,
            self._epoch,
            terms,
            [
                fetched
                for fetched in self._fetched
                if SessionPartition(fetched.topic_id, fetched.number) in in_session
            ],
            owner=ctx.connection,
            threads=ctx.broker.offloaded_reads,
            run=lambda work, name: ctx.run(work, name=name),
            check_again=self._check_again,
        )

    def _on_stored(self, acknowledging: Acknowledging, fetch: ShareFetch | None) -> None:
        try:
            self._go_on(acknowledging, fetch)
        except Exception as error:  # noqa: BLE001 - becomes the answer, and is logged with it.
            if not self._answer.is_done:
                self._answer.set_exception(error)

    def _go_on(self, acknowledging: Acknowledging, fetch: ShareFetch | None) -> None:
        for fetched in self._fetched:
            if fetched.share is not None and fetched.acknowledgement is None:
                fetched.acknowledgement = acknowledging.errors.get(fetched.share)
        if self._answer.is_done:
            return
        if fetch is None:
            self._respond(NO_ERROR)
            return
        self._ctx.broker.share_delivery.begin_fetch(self._session, fetch)
        fetch.answer.add_done_callback(self._on_fetched)
        # A client that disconnects cancels the answer, and with it the fetch.
        self._answer.add_done_callback(lambda _: fetch.answer.cancel())

    def _on_fetched(self, answer: Deferred[ErrorCode]) -> None:
        if self._answer.is_done:
            return
        if answer.error is not None:
            self._answer.set_exception(answer.error)
        else:
            self._respond(answer.result())

    def _check_again(self) -> None:
        """Check the access rules again, because they may have changed while the request waited."""
        if self._ctx.permissions_key == self._permissions_key:
            return
        for fetched in self._fetched:
            if fetched.share is not None:
                key = SessionPartition(fetched.topic_id, fetched.number)
                located = share.locate(self._ctx, self._group_id, key, was_in_session=True)
                fetched.share, fetched.log = located.share, located.log
                fetched.fail(located.error, located.message)

    def _respond(self, error: ErrorCode) -> None:
        lock_timeout_ms = share.lock_timeout_ms(self._ctx, self._group_id)
        topics: dict[bytes, list[PartitionData]] = {}
        if not error:
            for fetched in self._fetched:
                if self._is_answered(fetched):
                    topics.setdefault(fetched.topic_id, []).append(_partition(fetched))
        self._answer.set_result(
            _answer(
                error,
                lock_timeout_ms,
                [
                    ShareFetchableTopicResponse(topic_id=topic_id, partitions=partitions)
                    for topic_id, partitions in topics.items()
                ],
            )
        )

    def _is_answered(self, fetched: FetchedPartition) -> bool:
        """Whether the response includes a partition; updates `ShareSession.due`."""
        session = self._session
        key = SessionPartition(fetched.topic_id, fetched.number)
        if fetched.error:
            if key in session.partitions:
                session.due.add(key)
            return True
        is_due = key in session.due and fetched.was_acquirable
        if is_due or self._request.share_session_epoch == NEW_EPOCH:
            session.due.discard(key)
        return bool(is_due or fetched.acquired or fetched.was_acknowledged)


def _partition(fetched: FetchedPartition) -> PartitionData:
    acknowledgement = fetched.acknowledgement
    return PartitionData(
        partition_index=fetched.number,
        error_code=fetched.error,
        error_message=fetched.message,
        acknowledge_error_code=NO_ERROR if acknowledgement is None else acknowledgement.code,
        acknowledge_error_message=None if acknowledgement is None else acknowledgement.message,
        current_leader=share.NO_LEADER_CHANGE,
        records=memoryview(fetched.data),
        acquired_records=[
            AcquiredRecords(first_offset=first, last_offset=last, delivery_count=count)
            for first, last, count in fetched.acquired
        ],
    )


def _answer(
    error: ErrorCode, lock_timeout_ms: int, topics: list[ShareFetchableTopicResponse]
) -> ShareFetchResponse:
    return ShareFetchResponse(
        throttle_time_ms=0,
        error_code=error,
        acquisition_lock_timeout_ms=lock_timeout_ms,
        responses=topics,
        node_endpoints=[],
    )
