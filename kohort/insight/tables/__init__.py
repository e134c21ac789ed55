"""The declared schemas: of the history's events, and of all tables of the analysis."""

from typing import Final

from kohort.insight.event_rows import SCHEMA_VERSION
from kohort.insight.tables.columns import Column, Table
from kohort.insight.tables.event import EVENT
from kohort.insight.tables.findings import (
    ACTS,
    FLAPPING,
    GROUPS,
    HEARTBEAT_GAPS,
    NEEDLESS,
    PARTITIONS,
    SEQUENCE_GAPS,
    SLOW_MEMBERS,
    STORMS,
    UNAVAILABILITY,
)
from kohort.insight.tables.history import (
    AVOIDED,
    EVENT_KEY,
    MEMBERS,
    QUARANTINE,
    REBALANCES,
    RUNNING,
)

__all__ = [
    "ACTS",
    "AVOIDED",
    "EVENT",
    "EVENT_KEY",
    "FINDINGS",
    "FLAPPING",
    "GROUPS",
    "HEARTBEAT_GAPS",
    "HISTORY",
    "MEMBERS",
    "NEEDLESS",
    "PARTITIONS",
    "QUARANTINE",
    "REBALANCES",
    "RUNNING",
    "SCHEMA_VERSION",
    "SEQUENCE_GAPS",
    "SLOW_MEMBERS",
    "STORMS",
    "UNAVAILABILITY",
    "Column",
    "Table",
]

HISTORY: Final = (REBALANCES, AVOIDED, MEMBERS, RUNNING, QUARANTINE)
"""Rows of these tables are written once."""

FINDINGS: Final = (
    PARTITIONS,
    UNAVAILABILITY,
    STORMS,
    FLAPPING,
    SLOW_MEMBERS,
    HEARTBEAT_GAPS,
    ACTS,
    NEEDLESS,
    SEQUENCE_GAPS,
    GROUPS,
)
"""Rows of these tables are replaced when their group has new events. `groups` is written last: it
stores the last event covered by the group's rows in the others."""
