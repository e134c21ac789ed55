"""Contents of pages: the recorded week of the examples, and a small group of one's own making."""

import gzip
import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from kohort.insight.advisor.computation import compute_advice
from kohort.insight.advisor.setting import Setting
from kohort.insight.analysis.rows import is_event
from kohort.insight.report.contents import GroupPage, Row
from kohort.insight.report.events import History
from kohort.insight.report.from_history import advice_rows, group_page

WEEK = Path(__file__).parents[4] / "examples" / "rebalance-week" / "week.jsonl.gz"
BEGIN_MS = 1_767_607_200_000
"""Mon 5 Jan 2026, 10:00:00."""


@cache
def week() -> dict[str, list[Row]]:
    """The events of the week, by group."""
    groups: dict[str, list[Row]] = {}
    with gzip.open(WEEK) as lines:
        for line in lines:
            record = json.loads(line)
            if is_event(record):
                groups.setdefault(record["group"], []).append(record)
    return groups


@cache
def history(group: str) -> History:
    return History(group, week()[group])


def page(group: str = "billing", **changes: Any) -> GroupPage:  # noqa: ANN401 - any field.
    return replace(_page(group), **changes)


@cache
def _page(group: str) -> GroupPage:
    return group_page(history(group), advice())


@cache
def worked_out(group: str) -> list[Row]:
    """The advice that the advisor gives for a group of the week."""
    return advice_rows(compute_advice(group, history(group).events))


def advice() -> list[Row]:
    """Three settings and what there is: enough for a table and a plot."""

    def row(ordinal: int, rebalances: int, stopped_s: int, **more: object) -> Row:
        flags = {"is_recorded": False, "is_on_front": False, "is_best": False}
        setting = Setting(static=ordinal > 1, cooperative=ordinal == 2, session_timeout_ms=10_000)
        return {
            **setting.as_dict(),
            **flags,
            "ordinal": ordinal,
            "rebalances": rebalances,
            "stopped_ms": stopped_s * 1000,
            "stopped_spread_ms": 0,
            "unread_ms": 5 * stopped_s * 1000,
            "notice_ms": 8_500 + ordinal * 20_000,
            "text": f"check: setting {ordinal}",
            "unknown": ["what was not recorded"],
            **more,
        }

    return [
        row(0, 141, 6_500, is_recorded=True),
        row(1, 120, 5_000, initial_rebalance_delay_ms=10_000),
        row(2, 28, 519, is_on_front=True, is_best=True, session_timeout_ms=30_000),
        row(3, 19, 761, is_on_front=True, session_timeout_ms=45_000),
    ]


def event(sequence: int, at_s: float, member_id: str = "app-1", **more: Any) -> Row:  # noqa: ANN401 - fields of the event.
    """A rebalance of the group `g`, whose one member has this id."""
    at_ms = BEGIN_MS + int(at_s * 1000)
    trigger = {"kind": "member_added", "at_ms": at_ms, "member_id": member_id, "client_id": "app"}
    member = {
        "member_id": member_id,
        "client_id": "app",
        "fate": "kept",
        "mode": "eager",
        "join_received_ms": 10,
        "sync_answered_ms": 2_000,
        "partitions": {"known": True, "gained": [f"{member_id}-0"], "given_up": []},
    }
    made: Row = {
        "schema": 1,
        "kind": "rebalance",
        "group": "g",
        "sequence": sequence,
        "started_at_ms": at_ms,
        "previous_generation": sequence - 1,
        "generation": sequence,
        "previous_state": "Stable",
        "outcome": "stable",
        "trigger": trigger,
        "timeline": {"finished_ms": 2_000},
        "stopped": {"member_count": 1, "total_ms": 1_990, "longest_ms": 1_990},
        "waited_for": {"phase": "join", "ms": 1_900, "member_ids": [member_id]},
        "members": [member],
    }
    return made | more
