"""How much of what peers say goes into a record. Counts beside what is cut are of all."""

from collections.abc import Iterable
from itertools import islice
from typing import Final

MEMBERS_LISTED: Final = 1_000
"""Members with a timeline of their own; about half a megabyte of JSON."""

CAUSES_LISTED: Final = 100
"""Further causes of one rebalance."""

IDS_LISTED: Final = 100
"""Ids in one list."""

EXTENSIONS_LISTED: Final = 100

PARTITIONS_LISTED: Final = 50
"""In each of a member's lists."""

PROTOCOLS_LISTED: Final = 20

ID_CHARS: Final = 300
"""The most characters of client, member and instance ids and protocol names. Kafka's own ids are
shorter."""

TEXT_CHARS: Final = 255
"""The most characters of reasons and details."""

GONE_KEPT: Final = 10_000
"""Members that ceased to be ones while one rebalance ran."""

STRANGERS_KEPT: Final = 100
"""Requests of one rebalance that were refused or fenced and came from no member."""

AVOIDED_HELD: Final = 1_000
"""Avoided rebalances that wait for the record before theirs."""

ASSIGNMENT_BYTES_MAX: Final = 256 * 1024
"""Larger assignments and subscriptions are not looked into."""

PARTITIONS_COUNTED: Final = 200_000
"""Partitions of all members together; beyond it, what happened to partitions is not known."""

_ID_HEAD: Final = 240
_ID_TAIL: Final = 40
"""The end of a member id is what makes it unique."""


def cut_id(text: str) -> str:
    """`text`, or its beginning and its end."""
    return text if len(text) <= ID_CHARS else f"{text[:_ID_HEAD]}…{text[-_ID_TAIL:]}"


def cut_text(text: str | None) -> str | None:
    """`text`, or its beginning; None for nothing."""
    if not text:
        return None
    return text if len(text) <= TEXT_CHARS else f"{text[: TEXT_CHARS - 1]}…"


def cut_ids(ids: Iterable[str], count: int = IDS_LISTED) -> tuple[str, ...]:
    """The first of `ids`."""
    return tuple(cut_id(text) for text in islice(ids, count))
