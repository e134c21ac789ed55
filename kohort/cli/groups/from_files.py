"""The option ``--from``: reads histories from files instead of a broker.

A file contains history records as JSON lines, or responses of /groups/{group}/rebalances, or is the
log of a stock Kafka broker.
"""

import argparse
import json
from collections import defaultdict
from collections.abc import Iterator
from time import time
from typing import Any, Final

from kohort.cli.admin_http import Json
from kohort.cli.errors import NotFoundError, UsageError
from kohort.formats.text import listed
from kohort.groups.history.entry import observed_key
from kohort.groups.history.json_form import as_json, from_json
from kohort.groups.history.names import AVOIDED
from kohort.insight.output import add_timezone

UNKNOWN_STATE: Final = "Unknown"
"""Kafka's name of a state that is not known."""


def add_from(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--from",
        dest="files",
        action="append",
        default=[],
        metavar="PATH",
        help="read the history from a file of JSON lines, the directory of `kohort watch`, or the "
        "log of a stock Kafka broker; .gz is unpacked, - is standard input; repeatable, oldest "
        "first",
    )
    add_timezone(parser)


def history_from_files(options: argparse.Namespace, kind: str | None) -> Json:
    """A history like the response of GET /groups/{group}/rebalances. Raises as
    `records_from_files`.
    """
    records = records_from_files(options, options.group)
    wanted = [
        record
        for record in records
        if kind is None or (record.get("kind") == AVOIDED) == (kind == AVOIDED)
    ]
    try:
        shown = [
            _completed(record, as_json(from_json(record))) for record in wanted[-options.last :]
        ]
    except ValueError as error:
        raise UsageError(f"{', '.join(options.files)}: {error}") from error
    return {
        "group": options.group,
        "at_ms": int(time() * 1000),
        "state": UNKNOWN_STATE,
        "waiting": None,
        "total_avoided": sum(record.get("kind") == AVOIDED for record in records),
        "rebalances": shown,
    }


def _completed(given: Any, defaults: Any) -> Any:  # noqa: ANN401 - JSON.
    """Return `given`, adding fields that only `defaults` has: records made from logs lack some."""
    if isinstance(given, dict) and isinstance(defaults, dict):
        return defaults | {
            name: _completed(value, defaults.get(name)) for name, value in given.items()
        }
    if isinstance(given, list) and isinstance(defaults, list):
        return [_completed(*pair) for pair in zip(given, defaults, strict=True)]
    return given


def records_from_files(options: argparse.Namespace, group: str) -> list[Json]:
    """The records of a group, without repetitions, ordered by sequence number.

    Raises:
        UsageError: a file cannot be read, or is not a history.
        NotFoundError: the files have no such group.
    """
    groups = groups_in_files(options)
    if group not in groups:
        present = f"it has {listed(list(groups), most=10)}" if groups else "it has no groups"
        raise NotFoundError(f"no group {group!r} in {', '.join(options.files)}; {present}")
    return groups[group]


def groups_in_files(options: argparse.Namespace) -> dict[str, list[Json]]:
    """Return the records of each group as `records_from_files` does. Raises UsageError."""
    # Reads the logs of brokers, which other commands do not need.
    from kohort.insight.errors import ReportedError  # noqa: PLC0415
    from kohort.insight.history_files import histories  # noqa: PLC0415

    groups: defaultdict[str, dict[object, Json]] = defaultdict(dict)
    try:
        for name, lines in histories(options.files, options.timezone):
            for number, text in lines:
                for record in _records_in(text, f"{name}, line {number + 1}"):
                    # A long rebalance has two records: the second, complete one replaces the first.
                    key = observed_key(record) or record.get("sequence")
                    groups[str(record.get("group"))][key] = record
    except ReportedError as error:
        raise UsageError(str(error)) from error
    return {group: _ordered(list(records.values())) for group, records in groups.items()}


def _records_in(text: bytes, place: str) -> Iterator[Json]:
    try:
        data = json.loads(text)
    except ValueError:
        data = None
    if not isinstance(data, dict):
        raise UsageError(f"{place}: not a history record in JSON")
    # A line may be a response of GET /groups/{group}/rebalances, with a list of records.
    records = data.get("rebalances")
    if isinstance(records, list):
        yield from (record for record in records if isinstance(record, dict))
    else:
        yield data


def _ordered(records: list[Json]) -> list[Json]:
    return sorted(records, key=lambda record: _number(record.get("sequence")))


def _number(sequence: object) -> int:
    return sequence if isinstance(sequence, int) else 0
