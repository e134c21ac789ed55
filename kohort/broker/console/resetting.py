"""/api/groups/{group}/reset: sets a group's offsets, in two steps.

GET makes a plan and shows it; POST executes exactly this plan. A plan is identified by a random
token, which the response to GET contains and POST has to send in a header. Pages of other sites can
neither read that response nor send the header, so the token is also the protection against
cross-site requests; besides, `Sec-Fetch-Site` is checked. A plan belongs to the requester that
asked for it.
"""

import logging
import secrets
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from http import HTTPStatus
from typing import Any, Final, NamedTuple, TypeAlias

from kohort.broker.console.source import ConsoleSource
from kohort.broker.core.security.acls import Operation, ResourceType
from kohort.broker.groups_seen import GroupSeen
from kohort.broker.http.json_parts import SLICE_MS, answer, dump
from kohort.broker.http.messages import BadRequestError, HttpRequest, HttpResponse
from kohort.broker.http.requesters import denied, principal_of
from kohort.broker.http.routes import Query
from kohort.broker.metrics.partitions import open_partition
from kohort.broker.runtime.slices import Slice
from kohort.broker.topics.topic import Topic
from kohort.formats.text import shown
from kohort.groups.requests import CommitRequest, OffsetToCommit
from kohort.protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

Json: TypeAlias = dict[str, Any]

PLANS_MAX: Final = 16
PLAN_MS: Final = 300_000
"""A plan that is not confirmed within this time is dropped."""
PARTITIONS_MAX: Final = 500

TARGETS: Final = ("earliest", "latest", "offset", "shift", "time")
_NEED_NUMBER: Final = TARGETS[2:]
_NUMBER_MAX: Final = 2**62


class Move(NamedTuple):
    topic: Topic
    partition: int
    before: int | None
    """The committed offset; None if there is none."""
    after: int
    end: int


class Plan(NamedTuple):
    group_id: str
    principal: str
    moves: tuple[Move, ...]
    expires_ms: int
    """When the plan is dropped, by the monotonic clock."""


class _RefusedError(Exception):
    def __init__(self, status: HTTPStatus, text: str) -> None:
        super().__init__(text)
        self.response = HttpResponse.error(status, text)


class Resetting:
    """Handles the GET and POST requests; keeps each plan until it is executed or expires."""

    def __init__(self, source: ConsoleSource) -> None:
        self._source = source
        self._plans: OrderedDict[str, Plan] = OrderedDict()

    async def preview(self, request: HttpRequest) -> HttpResponse:
        """GET /api/groups/{group}/reset?to=TARGET&at=NUMBER&topic=TOPIC&partition=P: makes a plan.
        Needs READ on the group and the topics, as OffsetCommit does.
        """
        (group_id,) = request.path_values
        if not self._source.may(request, Operation.READ, ResourceType.GROUP, group_id):
            return denied("READ on the group")
        query = Query(request.query, "to", "at", "topic", "partition")
        group = self._source.groups.living_group(group_id)
        if group is None:
            return HttpResponse.error(HTTPStatus.NOT_FOUND, "no such group")
        try:
            moves = await self._moves(request, query, group)
        except _RefusedError as error:
            return error.response
        expires_ms = self._source.clock.monotonic_ms() + PLAN_MS
        token = self._store(Plan(group_id, principal_of(request), tuple(moves), expires_ms))
        described = group.describe()
        data = {
            "at_ms": self._source.groups.now().wall_ms,
            "group": group_id,
            "state": described.state,
            "member_count": described.member_count,
            "token": token,
            "valid_ms": PLAN_MS,
            "moves": list(_moves_json(moves)),
        }
        return answer([dump(data)])

    async def execute(self, request: HttpRequest) -> HttpResponse:
        """POST /api/groups/{group}/reset, with the token in the header Kohort-Confirm."""
        (group_id,) = request.path_values
        Query(request.query)
        if not self._source.may(request, Operation.READ, ResourceType.GROUP, group_id):
            return denied("READ on the group")
        plan = self._take(request)
        if plan is None or plan.group_id != group_id:
            text = "this preview is unknown or too old; make a new one"
            return HttpResponse.error(HTTPStatus.CONFLICT, text)
        try:
            offsets = self._checked(request, plan)
        except _RefusedError as error:
            return error.response
        result = await self._source.coordinator.commit(
            group_id, CommitRequest(offsets), may_answer_group_not_found=True
        )
        errors = [error for error in result.errors if error]
        if errors:
            return HttpResponse.error(HTTPStatus.CONFLICT, _reason(errors[0]))
        logger.info(
            "%s has set %d offsets of group %s in the console",
            plan.principal,
            len(offsets),
            shown(group_id),
        )
        return answer([dump({"group": group_id, "set": len(offsets)})])

    def _checked(self, request: HttpRequest, plan: Plan) -> tuple[OffsetToCommit, ...]:
        """Return the plan's offsets. Raises _RefusedError if rights or topics have changed."""
        for topic in {move.topic.name: move.topic for move in plan.moves}.values():
            self._check_readable(request, topic.name)
            if self._source.topics.get(topic.name) is not topic:
                text = f"the topic {shown(topic.name)} was deleted; make a new preview"
                raise _RefusedError(HTTPStatus.CONFLICT, text)
        return tuple(
            OffsetToCommit(
                move.topic.name, move.partition, move.after, topic_id=move.topic.topic_id
            )
            for move in plan.moves
        )

    async def _moves(self, request: HttpRequest, query: Query, group: GroupSeen) -> list[Move]:
        """Return the changes that the query describes. Raises _RefusedError and BadRequestError."""
        to, number = _target(query)
        given = query.text("topic")
        committed = {name: dict(offsets) for name, offsets in group.offsets.topics().items()}
        moves: list[Move] = []
        time_slice = Slice(self._source.clock, SLICE_MS)
        for name in [given] if given else sorted(committed):
            self._check_readable(request, name)
            topic = self._source.topics.get(name)
            if topic is None:
                continue
            before = {index: each.offset for index, each in committed.get(name, {}).items()}
            for index in _partitions(query, topic, () if given else before):
                if len(moves) >= PARTITIONS_MAX:
                    text = f"more than {PARTITIONS_MAX} partitions; choose a topic or a partition"
                    raise BadRequestError(text)
                try:
                    moves.append(await self._move(topic, index, before.get(index), to, number))
                except KafkaError as error:
                    text = f"partition {index} of {shown(name)} cannot be read: {error}"
                    raise _RefusedError(HTTPStatus.SERVICE_UNAVAILABLE, text) from error
                await time_slice.pause()
        if not moves:
            text = "no such topic" if given else "the group has no offsets; give a topic"
            raise _RefusedError(HTTPStatus.NOT_FOUND, text)
        return moves

    def _check_readable(self, request: HttpRequest, topic: str) -> None:
        """Raise _RefusedError if the requester lacks READ on the topic."""
        if not self._source.may(request, Operation.READ, ResourceType.TOPIC, topic):
            needed = f"READ on the topic {shown(topic)}"
            raise _RefusedError(HTTPStatus.FORBIDDEN, f"this page requires {needed}")

    async def _move(
        self, topic: Topic, index: int, before: int | None, to: str, number: int
    ) -> Move:
        """Return the change of one partition; the new offset is within the partition's existing
        offsets.
        """
        partition = open_partition(self._source.topics, topic, index)
        if partition is None:
            return Move(topic, index, before, 0, 0)
        partition.check_online()
        start, end = partition.log.log_start_offset, partition.high_watermark
        match to:
            case "earliest":
                after = start
            case "latest":
                after = end
            case "offset":
                after = number
            case "shift":
                after = (start if before is None else before) + number
            case _:
                found = await partition.reads.offset_for_timestamp(number)
                after = end if found is None else found[0]
        return Move(topic, index, before, min(max(after, start), end), end)

    def _store(self, plan: Plan) -> str:
        token = secrets.token_urlsafe(24)
        self._plans[token] = plan
        while len(self._plans) > PLANS_MAX:
            self._plans.popitem(last=False)
        return token

    def _take(self, request: HttpRequest) -> Plan | None:
        """Return the requester's plan and forget it, because a plan can be executed only once."""
        plan = self._plans.get(request.confirm)
        if plan is None or plan.principal != principal_of(request):
            return None
        del self._plans[request.confirm]
        return plan if self._source.clock.monotonic_ms() <= plan.expires_ms else None


def _target(query: Query) -> tuple[str, int]:
    to, at = query.text("to") or "", query.text("at") or ""
    if to not in TARGETS:
        raise BadRequestError(f"to must be one of {', '.join(TARGETS)}")
    if to not in _NEED_NUMBER:
        return to, 0
    digits = at.removeprefix("-") if to == "shift" else at
    if (
        not (digits.isascii() and digits.isdigit() and len(digits) < 20)
        or abs(int(at)) > _NUMBER_MAX
    ):
        raise BadRequestError(f"to={to} needs at=NUMBER")
    return to, int(at)


def _partitions(query: Query, topic: Topic, committed: Iterable[int]) -> list[int]:
    """Return the partitions to change: the one that the query names, else those with committed
    offsets, else all.
    """
    count = len(topic.partitions)
    text = query.text("partition")
    if not text:
        return sorted(index for index in committed if index < count) or list(range(count))
    if not (text.isascii() and text.isdigit() and len(text) < 10 and int(text) < count):
        raise BadRequestError(f"{shown(topic.name)} has the partitions 0 to {count - 1}")
    return [int(text)]


def _moves_json(moves: Iterable[Move]) -> Iterator[Json]:
    for move in moves:
        yield {
            "topic": move.topic.name,
            "partition": move.partition,
            "before": move.before,
            "after": move.after,
            "end": move.end,
        }


def _reason(error: ErrorCode) -> str:
    if error in {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION}:
        return "the group has members; stop them first, and make a new preview"
    return f"the offsets were not set: {error.name}"
