"""The advice on many groups in pieces of work, bytes in and bytes out, done wherever there is room.

Three kinds of them follow each other: a group's events are read, a few settings of it are replayed,
and what came of all its settings is weighed. How many are done at the same time, and where,
changes nothing of what comes of them.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from typing import Any, Final

from kohort.insight.advisor.advice import advise
from kohort.insight.advisor.computation import beyond_the_grid, lately
from kohort.insight.advisor.grid import grid
from kohort.insight.advisor.prediction import Prediction, predict
from kohort.insight.advisor.reading import read_trace
from kohort.insight.advisor.setting import Setting
from kohort.insight.advisor.trace import Trace
from kohort.insight.advisor.words import words

Key = tuple[str, str]
"""Cluster and group."""

SETTINGS_PER_PIECE: Final = 8
"""A tenth of a second's work or some seconds', as groups are: small enough to be spread evenly."""

SETTING: Final = tuple(one.name for one in fields(Setting))
"""The columns of a row that say which setting it is about."""


@dataclass(frozen=True, slots=True)
class GroupTrace:
    """What the events of a group come to."""

    key: Key
    trace: Trace | None = None
    last_sequence: int = 0
    error: str = ""
    """Why there is no trace."""

    @property
    def settings(self) -> int:
        """How many are to be replayed."""
        return 0 if self.trace is None else len(grid(self.trace))


def to_read(key: Key, texts: Sequence[str], days: int, known: Mapping[str, Any]) -> bytes:
    """The piece for `read`: events as JSON, and the fields of `Setting` that are known."""
    return pickle.dumps((key, list(texts), days, dict(known)))


def read(piece: bytes) -> bytes:
    """The group's trace of its last days; a `GroupTrace`."""
    key, texts, days, known = pickle.loads(piece)  # noqa: S301 - made by `to_read`, not by a stranger.
    try:
        records = lately([json.loads(text) for text in texts], days)
        trace = read_trace(key[1], records, known)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return pickle.dumps(GroupTrace(key, error=f"not a history: {error!r}"))
    if trace is None:
        return pickle.dumps(GroupTrace(key, error="no rebalance in it"))
    last = max(int(record.get("sequence") or 0) for record in records)
    return pickle.dumps(GroupTrace(key, trace, last))


def to_replay(found: GroupTrace) -> list[bytes]:
    """The pieces for `replay`, in the order of the grid."""
    count, each = found.settings, SETTINGS_PER_PIECE
    return [pickle.dumps((found.trace, at, min(at + each, count))) for at in range(0, count, each)]


def replay(piece: bytes) -> bytes:
    """What is to be expected under some settings; a list of `Prediction`."""
    trace, first, behind = pickle.loads(piece)  # noqa: S301 - as above.
    return pickle.dumps([predict(trace, setting) for setting in grid(trace)[first:behind]])


def to_weigh(found: GroupTrace, replayed: Sequence[bytes]) -> bytes:
    """The piece for `weigh`, of what came of the group's pieces for `replay`."""
    return pickle.dumps((found, list(replayed)))


def weigh(piece: bytes) -> bytes:
    """The rows of the table `advice` for one group, by their columns; moments in ms."""
    found, replayed = pickle.loads(piece)  # noqa: S301 - as above.
    predictions = [one for part in replayed for one in pickle.loads(part)]  # noqa: S301 - as above.
    predictions += beyond_the_grid(found.trace, predictions)
    return pickle.dumps(_rows(found, found.trace, predictions))


def _rows(found: GroupTrace, trace: Trace, predictions: list[Prediction]) -> list[dict[str, Any]]:
    told = advise(trace, predictions)
    rows = []
    for ordinal, one in enumerate(predictions):
        by_member = [
            {"member": slot.name, "stopped_ms": stopped_ms}
            for slot, stopped_ms in zip(trace.slots, one.stopped_by_slot, strict=True)
        ]
        rows.append(
            {
                "cluster_id": found.key[0],
                "group": found.key[1],
                "ordinal": ordinal,
                **dict(zip(SETTING, astuple(one.setting), strict=True)),
                "is_recorded": one is told.recorded,
                "is_on_front": one in told.front or one is told.quicker or one is told.both,
                "is_best": one == told.best,
                "rebalances": one.rebalances,
                "stopped_ms": one.stopped_ms,
                "stopped_longest_ms": one.stopped_longest_ms,
                "stopped_by_member": by_member,
                "partition_count": trace.partition_count,
                "unread_ms": one.unread_ms,
                "unread_longest_ms": one.unread_longest_ms,
                "deaths": one.deaths,
                "unnoticed_ms": one.unnoticed_ms,
                "unnoticed_longest_ms": one.unnoticed_longest_ms,
                "notice_ms": one.notice_ms,
                "text": words(told.recorded, one) if ordinal else told.check,
                "history_rebalances": trace.rebalances,
                "history_stopped_ms": trace.stopped_ms,
                "first_at": trace.begin_ms,
                "last_at": trace.end_ms,
                "last_sequence": found.last_sequence,
                "unknown": list(trace.unknown),
                "unranked": list(told.unranked),
                "quicker_member": one.quicker,
                "stopped_spread_ms": one.stopped_spread_ms,
            }
        )
    return rows
