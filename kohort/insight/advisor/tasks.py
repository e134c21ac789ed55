"""Divides the advice on many groups into independent tasks, with bytes as input and output.

Three kinds follow each other: reading a group's events, replaying some of its settings, and
comparing all its predictions. The result does not depend on where and how many tasks run
concurrently.
"""

import json
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from typing import Any, Final

from kohort.insight.advisor.advice import advise
from kohort.insight.advisor.client_software import libraries_of
from kohort.insight.advisor.computation import predict_beyond_grid, recent_records
from kohort.insight.advisor.grid import grid
from kohort.insight.advisor.prediction import Prediction, predict
from kohort.insight.advisor.reading import read_trace
from kohort.insight.advisor.setting import Setting
from kohort.insight.advisor.text import describe
from kohort.insight.advisor.trace import Trace

Key = tuple[str, str]
"""Cluster and group."""

SETTINGS_PER_TASK: Final = 8
"""A task takes from a tenth of a second to some seconds, small enough to balance the load."""

SETTING: Final = tuple(field.name for field in fields(Setting))
"""The columns that identify a row's setting."""


@dataclass(frozen=True, slots=True)
class GroupTrace:
    key: Key
    trace: Trace | None = None
    last_sequence: int = 0
    error: str = ""
    """The reason for a missing trace."""

    @property
    def settings(self) -> int:
        """The number of settings to replay."""
        return 0 if self.trace is None else len(grid(self.trace))


def to_read(key: Key, texts: Sequence[str], days: int, known: Mapping[str, Any]) -> bytes:
    """Return the task for `read`: events as JSON, and the known fields of `Setting`."""
    return pickle.dumps((key, list(texts), days, dict(known)))


def read(task: bytes) -> bytes:
    """Read the trace of the group's last days; return a `GroupTrace`."""
    key, texts, days, known = pickle.loads(task)  # noqa: S301 - made by `to_read`, not by a stranger.
    try:
        records = recent_records([json.loads(text) for text in texts], days)
        trace = read_trace(key[1], records, known)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return pickle.dumps(GroupTrace(key, error=f"not a history: {error!r}"))
    if trace is None:
        return pickle.dumps(GroupTrace(key, error="no rebalance in the history"))
    last = max(int(record.get("sequence") or 0) for record in records)
    return pickle.dumps(GroupTrace(key, trace, last))


def to_replay(group_trace: GroupTrace) -> list[bytes]:
    """Return the tasks for `replay`, in the order of the grid."""
    count, each = group_trace.settings, SETTINGS_PER_TASK
    return [
        pickle.dumps((group_trace.trace, at, min(at + each, count))) for at in range(0, count, each)
    ]


def replay(task: bytes) -> bytes:
    """Predict the outcome of some settings; return a list of `Prediction`."""
    trace, first, behind = pickle.loads(task)  # noqa: S301 - as above.
    return pickle.dumps([predict(trace, setting) for setting in grid(trace)[first:behind]])


def to_weigh(group_trace: GroupTrace, replayed: Sequence[bytes]) -> bytes:
    """Return the task for `weigh`, from the results of the group's `replay` tasks."""
    return pickle.dumps((group_trace, list(replayed)))


def weigh(task: bytes) -> bytes:
    """Return the rows of the table `advice` for one group, as mappings by column; times in ms."""
    group_trace, replayed = pickle.loads(task)  # noqa: S301 - as above.
    predictions = [prediction for result in replayed for prediction in pickle.loads(result)]  # noqa: S301 - as above.
    predictions += predict_beyond_grid(group_trace.trace, predictions)
    return pickle.dumps(_rows(group_trace, group_trace.trace, predictions))


def _rows(
    group_trace: GroupTrace, trace: Trace, predictions: list[Prediction]
) -> list[dict[str, Any]]:
    advice = advise(trace, predictions)
    rows = []
    for ordinal, prediction in enumerate(predictions):
        by_member = [
            {"member": slot.name, "stopped_ms": stopped_ms}
            for slot, stopped_ms in zip(trace.slots, prediction.stopped_by_slot, strict=True)
        ]
        rows.append(
            {
                "cluster_id": group_trace.key[0],
                "group": group_trace.key[1],
                "ordinal": ordinal,
                **dict(zip(SETTING, astuple(prediction.setting), strict=True)),
                "is_recorded": prediction is advice.recorded,
                "is_on_front": prediction in advice.front
                or prediction is advice.quicker
                or prediction is advice.both,
                "is_best": prediction == advice.best,
                "rebalances": prediction.rebalances,
                "stopped_ms": prediction.stopped_ms,
                "stopped_longest_ms": prediction.stopped_longest_ms,
                "stopped_by_member": by_member,
                "convergence_ms": prediction.convergence_ms,
                "partition_count": trace.partition_count,
                "unread_ms": prediction.unread_ms,
                "unread_longest_ms": prediction.unread_longest_ms,
                "deaths": prediction.deaths,
                "unnoticed_ms": prediction.unnoticed_ms,
                "unnoticed_longest_ms": prediction.unnoticed_longest_ms,
                "notice_ms": prediction.notice_ms,
                "text": describe(advice.recorded, prediction) if ordinal else advice.check,
                "history_rebalances": trace.rebalances,
                "history_stopped_ms": trace.stopped_ms,
                "first_at": trace.begin_ms,
                "last_at": trace.end_ms,
                "last_sequence": group_trace.last_sequence,
                "unknown": list(trace.unknown),
                "unranked": list(advice.unranked),
                "libraries": list(libraries_of(trace.software)),
                "quicker_member": prediction.quicker,
                "stopped_spread_ms": prediction.stopped_spread_ms,
            }
        )
    return rows
