"""A group's rebalance records, with the same sentences as ``kohort groups why``."""

import asyncio
import json
from collections import OrderedDict
from concurrent.futures import Executor
from typing import Any, Final, TypeAlias

from kohort.broker.console.recent import record_without_members
from kohort.broker.groups_seen import RebalancesSeen
from kohort.broker.history.rings import StoredRecord
from kohort.broker.http.acts_json import wait_acts
from kohort.broker.http.json_parts import dump
from kohort.broker.http.rebalance_json import MEMBERS_BEGIN, without_members
from kohort.broker.runtime.slices import Slice, run
from kohort.formats.text import utc_time
from kohort.groups.history.evidence import record_evidence
from kohort.groups.history.json_form import kind_of, parse_text
from kohort.groups.history.model import AssignedRecord, AvoidedRecord, HistoryRecord
from kohort.groups.history.sentence import record_sentence, sentence

Json: TypeAlias = dict[str, Any]

LISTED_MAX: Final = 1_000

OFFLOADED_BYTES_MIN: Final = 16 * 1024
"""Records of at least this size, about thirty members, are parsed on another thread; parsing a
shorter one takes at most a millisecond."""

HEADS_REMEMBERED: Final = 100
"""Maximum cached records, of a few kilobytes each."""


class RecordFormatter:
    """Formats whole records. Sentence and evidence need all members, perhaps a thousand, so long
    records are parsed on another thread, and the results are cached.
    """

    def __init__(self, history: RebalancesSeen, executor: Executor) -> None:
        self._history = history
        self._executor = executor
        self._known: OrderedDict[tuple[str, int], bytes] = OrderedDict()
        """Cached records without their members, by group and sequence."""

    async def wait_newest(self, group_id: str, time_slice: Slice) -> Json | None:
        """Return the newest rebalance with its summary sentence and evidence, without members; None
        if there is none.
        """
        steps = self._history.open_text_steps(group_id)
        if steps is not None:
            return _parsed(await self._wait_head(await run(steps, time_slice)))
        for kept in reversed(self._history.stored_records(group_id)):
            record = record_without_members(kept)
            if not isinstance(record, AvoidedRecord):
                return _parsed(await self._wait_known_head(group_id, record.sequence, kept))
        return None

    async def wait_record(
        self, group_id: str, sequence: int, time_slice: Slice
    ) -> list[bytes] | None:
        """Return the record with this number as JSON, with its members; None if there is none."""
        for kept in reversed(self._history.stored_records(group_id)):
            record = record_without_members(kept)
            await time_slice.pause()
            if record.sequence == sequence:
                head = await self._wait_known_head(group_id, sequence, kept)
                return _with_members(head, kept.text)
        steps = self._history.open_text_steps(group_id)
        if steps is not None:
            text = await run(steps, time_slice)
            if parse_text(without_members(text)).sequence == sequence:
                return _with_members(await self._wait_head(text), text)
        return None

    async def _wait_known_head(self, group_id: str, sequence: int, kept: StoredRecord) -> bytes:
        key = group_id, sequence
        head = self._known.get(key)
        if head is None:
            head = self._known[key] = await self._wait_head(kept.text)
            if len(self._known) > HEADS_REMEMBERED:
                self._known.popitem(last=False)
        else:
            self._known.move_to_end(key)
        return head

    async def _wait_head(self, text: bytes) -> bytes:
        if len(text) < OFFLOADED_BYTES_MIN:
            return _head(text)
        return await asyncio.get_running_loop().run_in_executor(self._executor, _head, text)


def _head(text: bytes) -> bytes:
    """Return a record with its summary sentence and evidence, without members. May run on any
    thread.
    """
    data: Json = json.loads(text)
    texts = {
        "sentence": record_sentence(data, utc_time),
        "evidence": record_evidence(data, utc_time),
    }
    data.pop("members", None)
    return dump(texts | data)


def _parsed(head: bytes) -> Json:
    data: Json = json.loads(head)
    return data


def _with_members(head: bytes, text: bytes) -> list[bytes]:
    _, separator, members = text.partition(MEMBERS_BEGIN)
    return [head[:-1], separator, members] if separator else [head]


async def listed(history: RebalancesSeen, group_id: str, last: int, time_slice: Slice) -> Json:
    """Return summaries of the newest `last` records, oldest first, and the acts that caused several
    of them, such as a deploy.
    """
    records: list[HistoryRecord] = []
    steps = history.open_text_steps(group_id)
    if steps is not None:
        text = await run(steps, time_slice)
        records.append(parse_text(without_members(text)))
    kept = history.stored_records(group_id)
    for stored in reversed(kept):
        if len(records) >= last:
            break
        records.append(record_without_members(stored))
        await time_slice.pause()
    records.reverse()
    data: Json = {"records": []}
    for record in records:
        data["records"].append(_summary(record))
        await time_slice.pause()
    data["acts"] = await wait_acts(group_id, kept, time_slice, at_least=last)
    return data


def _summary(record: HistoryRecord) -> Json:
    trigger = record.trigger
    data: Json = {
        "kind": kind_of(record),
        "sequence": record.sequence,
        "cause": trigger.kind.value,
        "certainty": trigger.certainty.value,
        "sentence": sentence(record),
    }
    if isinstance(record, AvoidedRecord | AssignedRecord):
        return data | {
            "at_ms": record.at_ms,
            "generation": record.generation,
        }
    times = record.timeline
    return data | {
        "at_ms": record.started_at_ms,
        "generation": record.generation,
        "outcome": record.outcome.value,
        "took_ms": times.finished_ms,
        "members": record.members_after,
        "stopped_count": record.stopped.member_count,
        "stopped_longest_ms": record.stopped.longest_ms,
        "stopped_total_ms": record.stopped.total_ms,
        "moved": record.partitions.moved if record.partitions.known else None,
    }
