"""GET /groups, /groups/{group}, /groups/{group}/rebalances and /groups/{group}/share: the state of
groups, and their rebalances, as JSON.

The pages must not slow down the groups: responses are built in time slices, one at a time, and
their size is bounded.
"""

import asyncio
import json
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Final

from kohort.broker.core.security.acls import Operation, ResourceType
from kohort.broker.groups_seen import GroupSeen, GroupsSeen, RebalancesSeen, SharesSeen, no_shares
from kohort.broker.history.rings import StoredRecord
from kohort.broker.http.json_parts import ANSWER_BYTES, SLICE_MS, Items, answer, dump, wait_dump
from kohort.broker.http.messages import BadRequestError, HttpRequest, HttpResponse
from kohort.broker.http.rebalance_json import with_sentence, without_members
from kohort.broker.http.requesters import requester_of, sees_cluster
from kohort.broker.http.routes import Query
from kohort.broker.runtime.slices import Slice, run
from kohort.groups.events import TriggerKind
from kohort.groups.history.names import AVOIDED, REBALANCE, SCHEMA
from kohort.groups.kinds import GroupKind
from kohort.groups.views import group_json, member_json, waiting_json
from kohort.protocol.errors import ErrorCode

RECORD_BYTES_MAX: Final = 64 * 1024
"""Maximum size of a history record whose members' partitions are filtered, which takes half a
millisecond; a larger record is returned without its members."""


_TOPIC_CAUSES: Final = frozenset(
    {
        TriggerKind.SUBSCRIPTION_CHANGED.value,
        TriggerKind.REGEX_RESOLVED.value,
        TriggerKind.TOPICS_CHANGED.value,
    }
)
"""Causes whose record fields `old_protocols` and `new_protocols` contain topic names."""


class SeenTopics:
    """Decides which topics the requester may see, with a cache for one request.

    Members, times, causes and partition counts are not filtered.
    """

    def __init__(self, request: HttpRequest) -> None:
        self._requester = requester_of(request)
        self._sees_all = sees_cluster(request)
        self._known: dict[str, bool] = {}

    def includes(self, topic: str) -> bool:
        """Whether the requester may describe the topic. A denial is not logged."""
        if self._sees_all:
            return True
        known = self._known.get(topic)
        if known is None:
            known = self._requester.sees(Operation.DESCRIBE, ResourceType.TOPIC, topic)
            self._known[topic] = known
        return known

    def of_record(self, text: bytes) -> bytes:
        """Return a history record without the names of topics that the requester may not see."""
        if self._sees_all:
            return text
        if len(text) > RECORD_BYTES_MAX:
            text = without_members(text)
        record = json.loads(text)
        for cause in (record.get("trigger"), *record.get("further_causes", ())):
            if cause:
                self._filter_cause(cause)
        for member in record.get("members", ()):
            partitions = member["partitions"]
            for moved in ("given_up", "gained"):
                partitions[moved] = [
                    name for name in partitions[moved] if self.includes(name.rpartition("-")[0])
                ]
        return dump(record)

    def _filter_cause(self, cause: dict[str, Any]) -> None:
        fields = ["grown_topics", "subscribed", "unsubscribed"]
        if cause.get("kind") in _TOPIC_CAUSES:
            fields += ["old_protocols", "new_protocols"]
            cause["detail"] = None  # The detail names topics.
        for name in fields:
            if cause.get(name):
                cause[name] = list(filter(self.includes, cause[name]))


GROUPS_DEFAULT: Final = 1_000
GROUPS_MAX: Final = 10_000
MEMBERS_DEFAULT: Final = 1_000
MEMBERS_MAX: Final = 10_000
RECORDS_DEFAULT: Final = 10
RECORDS_MAX: Final = 1_000

_SORTED_TOGETHER: Final = 2_000
"""Number of ids sorted at once: larger chunks are cheaper overall, and this takes well below a
millisecond."""

_AVOIDED: Final = b'{"schema":%d,"kind":"%b"' % (SCHEMA, AVOIDED.encode())
"""First bytes of the record of an avoided rebalance."""


class GroupPages:
    """The pages of one broker or watcher. They run one at a time: many concurrent pages, each
    with a time slice per event loop iteration, would delay the groups.
    """

    def __init__(
        self, groups: GroupsSeen, history: RebalancesSeen, shares: SharesSeen = no_shares
    ) -> None:
        self._groups = groups
        self._history = history
        self._shares = shares
        self._lock = asyncio.Lock()

    # Pages about all groups.

    async def list_groups(self, request: HttpRequest) -> HttpResponse:
        """GET /groups?limit=N&after=ID: a page of the groups, sorted by id."""
        async with self._lock:
            return await self._list(request)

    async def _list(self, request: HttpRequest) -> HttpResponse:
        query = Query(request.query, "limit", "after")
        limit = query.number("limit", GROUPS_DEFAULT, at_most=GROUPS_MAX)
        time_slice = Slice(self._groups, SLICE_MS)
        ids, total = await self._ids_after(
            query.text("after"), limit + 1, time_slice, self._seen_by(request)
        )
        items = Items(time_slice)
        last = None
        for group_id in ids[:limit]:
            if items.is_full:
                break
            group = self._groups.living_group(group_id)
            last = group_id
            if group is not None:
                await items.add(dump(self._group_json(group)))
        is_more = bool(ids) and last != ids[-1]
        tail = dump({"total": total, "after": last if is_more else None})
        return answer([b'{"groups":[', *items.parts, b"],", tail[1:]])

    def _group_json(
        self, group: GroupSeen, *, with_waiting_members: bool = False
    ) -> dict[str, Any]:
        view = group_json(group.describe(), self._history.totals(group.group_id))
        waiting = waiting_json(
            group.describe_waiting(), self._groups.now(), with_members=with_waiting_members
        )
        if waiting is not None:
            view["waiting"] = waiting
        return view

    async def _ids_after(
        self,
        after: str | None,
        count: int,
        time_slice: Slice,
        is_seen: Callable[[str], bool] | None,
    ) -> tuple[list[str], int]:
        """Return the first `count` ids after `after`, sorted, and the number of all groups. With
        `is_seen`, only groups that the requester may see are returned and counted.

        Sorting a hundred thousand ids at once would block the event loop for too long.
        """
        every_id = self._groups.group_ids()
        total = 0
        ids: list[str] = []
        for start in range(0, len(every_id), _SORTED_TOGETHER):
            chunk = every_id[start : start + _SORTED_TOGETHER]
            if is_seen is not None:
                chunk = [group_id for group_id in chunk if is_seen(group_id)]
            total += len(chunk)
            ids += chunk if after is None else [group_id for group_id in chunk if group_id > after]
            # Nearly sorted already, which makes the sort quick.
            ids.sort()
            del ids[count:]
            await time_slice.pause()
        return ids, total

    def _seen_by(self, request: HttpRequest) -> Callable[[str], bool] | None:
        """Return a predicate for the groups that the requester may see; None if it may see all
        groups.
        """
        if sees_cluster(request):
            return None
        sees = requester_of(request).sees
        return lambda group: sees(Operation.DESCRIBE, ResourceType.GROUP, group)

    # Pages about one group.

    async def describe(self, request: HttpRequest) -> HttpResponse:
        """GET /groups/{group}?limit=N: one group, with at most N of its members."""
        async with self._lock:
            return await self._describe(request)

    async def _describe(self, request: HttpRequest) -> HttpResponse:
        (group_id,) = request.path_values
        limit = Query(request.query, "limit").number("limit", MEMBERS_DEFAULT, at_most=MEMBERS_MAX)
        topics = SeenTopics(request)
        group = self._groups.living_group(group_id)
        if group is None:
            return self._without_group(group_id)
        time_slice = Slice(self._groups, SLICE_MS)
        described = group.describe()
        view = self._group_json(group, with_waiting_members=True)
        view["at_ms"] = self._groups.now().wall_ms
        view["protocol"] = described.assignor if described.is_stable else None
        view["leader"] = described.leader_id
        count = view.pop("members")
        items = Items(time_slice)
        for member in group.describe_members(limit):
            if items.is_full:
                break
            await items.add(dump(member_json(described, member, topics.includes)))
        view["member_count"] = count
        view["members_dropped"] = max(count - items.count, 0)
        last = await self._last_rebalance(group_id, topics, time_slice)
        head = dump(view)[:-1]
        return answer(
            [head, b',"last_rebalance":', last, b',"members":[', *items.parts, b"]}"],
        )

    async def _last_rebalance(self, group_id: str, topics: SeenTopics, time_slice: Slice) -> bytes:
        """Return the last rebalance without its members; /groups/{group}/rebalances has them."""
        steps = self._history.open_text_steps(group_id)
        text = None if steps is None else await run(steps, time_slice)
        if text is None:
            kept = reversed(self._history.stored_records(group_id))
            text = next((packed.text for packed in kept if not _is_avoided(packed)), None)
        if text is None:
            return b"null"
        return without_members(with_sentence(topics.of_record(text)))

    # Pages with a group's rebalance history.

    async def rebalances(self, request: HttpRequest) -> HttpResponse:
        """GET /groups/{group}/rebalances?last=N&kind=K: the newest records, oldest first."""
        async with self._lock:
            return await self._rebalances(request)

    async def _rebalances(self, request: HttpRequest) -> HttpResponse:
        (group_id,) = request.path_values
        query = Query(request.query, "last", "kind")
        last = query.number("last", RECORDS_DEFAULT, at_most=RECORDS_MAX)
        kind = query.text("kind")
        if kind not in {None, REBALANCE, AVOIDED}:
            raise BadRequestError(f"kind must be {REBALANCE} or {AVOIDED}")
        time_slice = Slice(self._groups, SLICE_MS)
        topics = SeenTopics(request)
        group = self._groups.living_group(group_id)
        steps = self._history.open_text_steps(group_id)
        kept = self._history.stored_records(group_id)
        if group is None and steps is None and not kept:
            return self._without_group(group_id)
        now = self._groups.now()
        rebalances, avoided = self._history.totals(group_id)
        described = None if group is None else group.describe()
        waiting = None if group is None else group.describe_waiting()
        view: dict[str, Any] = {
            "group": group_id,
            "at_ms": now.wall_ms,
            "state": None if described is None else described.state,
            "type": None if described is None else described.kind.value,
            "generation": None if described is None else described.generation,
            "waiting": waiting_json(waiting, now, with_members=True, may_name=topics.includes),
            "total_rebalances": rebalances,
            "total_avoided": avoided,
        }
        texts: list[bytes] = []
        if steps is not None and kind != AVOIDED:
            texts.append(with_sentence(topics.of_record(await run(steps, time_slice))))
        size = sum(map(len, texts))
        for packed in reversed(kept):
            if len(texts) >= last or size >= ANSWER_BYTES:
                break
            if kind is None or (kind == AVOIDED) == _is_avoided(packed):
                texts.append(with_sentence(topics.of_record(packed.text)))
                size += len(texts[-1])
                await time_slice.pause()
        # Imported here, because no other page of this module needs the analysis of acts.
        from kohort.broker.http.acts_json import wait_acts  # noqa: PLC0415

        view["acts"] = await wait_acts(group_id, kept, time_slice, at_least=last)
        parts = [part for text in reversed(texts) for part in (text, b",")][:-1]
        return answer([dump(view)[:-1], b',"rebalances":[', *parts, b"]}"])

    # Pages about share groups.

    async def share(self, request: HttpRequest) -> HttpResponse:
        """GET /groups/{group}/share?topic=T&partition=N&offset=O: the share-partitions of a share
        group, or one of them with the state and the deliveries of a record.
        """
        async with self._lock:
            return await self._share(request)

    async def _share(self, request: HttpRequest) -> HttpResponse:
        (group_id,) = request.path_values
        query = Query(request.query, "topic", "partition", "offset")
        topic, number = query.text("topic"), query.count("partition")
        offset = query.count("offset")
        if (topic is None) != (number is None) or (topic is None and offset is not None):
            raise BadRequestError("a topic needs a partition, and an offset both")
        group, delivery = self._groups.living_group(group_id), self._shares()
        if group is None:
            return self._without_group(group_id)
        if group.describe().kind is not GroupKind.SHARE or delivery is None:
            return HttpResponse.error(HTTPStatus.NOT_FOUND, "not a share group")
        from kohort.broker.http.share_json import ShareGroupView  # noqa: PLC0415 - see lazy.py.

        topics = SeenTopics(request)
        view = ShareGroupView(delivery, group, self._groups.now, topics.includes)
        described = group.describe()
        head = {"group": group_id, "state": described.state, "members": described.member_count}
        if topic is None or number is None:
            time_slice = Slice(self._groups, SLICE_MS)
            return answer(await wait_dump(head | await view.wait_json(time_slice), time_slice))
        data = view.partition_json(topic, number, offset) if topics.includes(topic) else None
        if data is None:
            text = "the group has not initialized this partition, so nobody can fetch it"
            return HttpResponse.error(HTTPStatus.NOT_FOUND, text)
        return answer([dump({**head, "at_ms": self._groups.now().wall_ms, **data})])

    # Helpers of several pages.

    def _without_group(self, group_id: str) -> HttpResponse:
        error = self._groups.read_error(group_id)
        if error:
            name = ErrorCode(error).name
            text = f"the state of this group is unavailable now: {name}"
            return HttpResponse.error(HTTPStatus.SERVICE_UNAVAILABLE, text)
        if self._history.stored_records(group_id):
            text = "the group does not exist any more; /groups/{group}/rebalances has its history"
            return HttpResponse.error(HTTPStatus.NOT_FOUND, text)
        return HttpResponse.error(HTTPStatus.NOT_FOUND, "no such group; /groups lists them")


def _is_avoided(packed: StoredRecord) -> bool:
    return packed.head(len(_AVOIDED)) == _AVOIDED
