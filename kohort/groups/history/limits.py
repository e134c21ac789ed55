"""Limits on peer-supplied data in a record. Counts beside truncated lists are of all items."""

from collections.abc import Iterable
from itertools import islice
from typing import Final

MEMBERS_LISTED: Final = 1_000
"""Members listed with a timeline; about half a megabyte of JSON."""

CAUSES_LISTED: Final = 100
"""Additional causes of one rebalance."""

IDS_LISTED: Final = 100

EXTENSIONS_LISTED: Final = 100

PARTITIONS_LISTED: Final = 50
"""Entries in each of a member's lists."""

PROTOCOLS_LISTED: Final = 20

ID_CHARS: Final = 300
"""Maximum length of client, member and instance ids and protocol names. Kafka's own ids are
shorter."""

TEXT_CHARS: Final = 255
"""Maximum length of reasons and details."""

GONE_KEPT: Final = 10_000
"""Members that left during one rebalance."""

STRANGERS_KEPT: Final = 100
"""Requests from clients that were not members and were refused or fenced, per rebalance."""

AVOIDED_HELD: Final = 1_000
"""Avoided rebalances that wait for the record before theirs."""

ASSIGNMENT_BYTES_MAX: Final = 256 * 1024
"""Larger assignments and subscriptions are not parsed."""

PARTITIONS_COUNTED: Final = 200_000
"""Partitions of all members together; beyond it, the movement of partitions is unknown."""

_ID_HEAD: Final = 240
_ID_TAIL: Final = 40
"""The end of a member id is what makes it unique."""


def cut_id(text: str) -> str:
    """Return `text`, shortened in the middle if necessary."""
    return text if len(text) <= ID_CHARS else f"{text[:_ID_HEAD]}…{text[-_ID_TAIL:]}"


def cut_text(text: str | None) -> str | None:
    """Return `text`, truncated if necessary; None if empty."""
    if not text:
        return None
    return text if len(text) <= TEXT_CHARS else f"{text[: TEXT_CHARS - 1]}…"


def cut_ids(ids: Iterable[str], count: int = IDS_LISTED) -> tuple[str, ...]:
    """Return the first of `ids`, shortened."""
    return tuple(cut_id(text) for text in islice(ids, count))
