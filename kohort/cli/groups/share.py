"""Share groups in ``kohort groups describe`` and ``why``, from the broker's HTTP port: only the
broker knows which member has locked which record.
"""

import argparse
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final
from urllib.parse import quote, urlencode

from kohort.admin.cluster import Cluster
from kohort.cli.admin_http import Json, fetch
from kohort.cli.broker_http import http_of
from kohort.cli.errors import CommandError
from kohort.cli.options import security_of
from kohort.cli.output import table
from kohort.formats.text import counted, duration, shown
from kohort.groups.history.wording import short_id

ARCHIVED_LISTED: Final = 5

_HEAD: Final = (
    "TOPIC",
    "PARTITION",
    "START",
    "LAST ACQUIRED",
    "LAG",
    "LOCKED",
    "DELIVERIES",
    "RELEASES",
    "LOCK TIMEOUTS",
    "ARCHIVED",
    "OLDEST LOCK",
)


def share_path(group: str, **query: object) -> str:
    """Return the path of a share group's page."""
    path = f"/groups/{quote(group, safe='', errors='surrogateescape')}/share"
    asked = {name: value for name, value in query.items() if value is not None}
    return f"{path}?{urlencode(asked)}" if asked else path


def share_group(options: argparse.Namespace, cluster: Cluster, group: str) -> Json | None:
    """The share group's page; None if the broker's HTTP port does not return it."""
    url = http_of(cluster)
    if url is not None:
        with suppress(CommandError):
            return fetch(url, share_path(group), options.timeout, security_of(options))
    return None


def share_lines(answer: Json) -> Iterator[str]:
    """The output of ``kohort groups why``, from a response of GET /groups/{group}/share."""
    if "text" in answer:
        yield from (shown(line) for line in answer["text"])
        return
    yield f"Group {shown(answer['group'])}: {_summary(answer)}."
    for warning in answer["warnings"]:
        yield _warning(warning)
    for partition in answer["share_partitions"]:
        yield ""
        yield from (shown(line) for line in partition["text"])
    archived = answer["archived"][-ARCHIVED_LISTED:]
    if archived:
        yield ""
        yield "Records that were archived last; `kohort groups why` with one of them says more:"
    for ended in archived:
        member = "" if ended["member_id"] is None else f", member {short_id(ended['member_id'])}"
        ago = duration(max(answer["at_ms"] - ended["at_ms"], 0))
        yield f"  {_records(ended)}: {ended['how']}{member}, {ago} ago"


def share_partition_lines(answer: Json) -> Iterator[str]:
    """The share-partitions as a table."""
    rows = [_row(partition, answer["at_ms"]) for partition in answer["share_partitions"]]
    yield from table(_HEAD, rows)
    for warning in answer["warnings"]:
        yield ""
        yield _warning(warning)


def _summary(answer: Json) -> str:
    lags = [partition["lag"] for partition in answer["share_partitions"]]
    members = counted(answer["members"], "member")
    return f"share group, {shown(answer['state'])}, {members}, lag {sum(lags)}"


def _warning(warning: Json) -> str:
    return f"Warning: {shown(warning['text'])} {shown(warning['advice'])}"


def _row(partition: Json, at_ms: int) -> tuple[Any, ...]:
    counts, lock = partition["counts"], partition["oldest_lock"]
    oldest = None
    if lock is not None:
        since = duration(max(at_ms - lock["since_ms"], 0))
        oldest = f"{lock['offset']} by {short_id(lock['member_id'])} since {since}"
    return (
        partition["topic"],
        partition["partition"],
        partition["start"],
        partition["end"],
        partition["lag"],
        partition["acquired"],
        counts["deliveries"],
        counts["releases"],
        counts["lock_timeouts"],
        counts["rejects"] + counts["archived_at_limit"],
        oldest,
    )


def _records(ended: Json) -> str:
    first, last = ended["first_offset"], ended["last_offset"]
    offsets = f"record {first}" if first == last else f"records {first} to {last}"
    return f"{shown(ended['topic'])}-{ended['partition']}, {offsets}"
