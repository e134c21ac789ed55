"""Executes ``kohort groups advise``: reads the history, replays it, prints a table of settings."""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from itertools import chain
from typing import Any, Final

from kohort.cli.errors import UnavailableError, UsageError
from kohort.cli.groups.from_files import records_from_files
from kohort.cli.groups.history import history_of
from kohort.cli.options import print_result
from kohort.cli.output import Cell, table
from kohort.formats.text import counted, duration, listed, shown
from kohort.groups.steps import at_once
from kohort.insight.advisor.advice import Advice
from kohort.insight.advisor.client_software import libraries_of
from kohort.insight.advisor.computation import compute_advice
from kohort.insight.advisor.config_lines import ConfigLines, config_lines
from kohort.insight.advisor.prediction import Prediction
from kohort.insight.advisor.setting import known_settings
from kohort.insight.advisor.text import changes, choice, describe, is_by_chance
from kohort.insight.analysis.group_acts import act_rows_steps
from kohort.insight.report.late_returns import enough, late_returns, reason
from kohort.insight.report.markup import NBSP
from kohort.insight.report.text import duration as days_and_hours

Json = dict[str, Any]

HEAD: Final = ("  SETTING", "REBALANCES", "STOPPED", "NO READER", "CRASH NOTICED AFTER")
_NAMES: Final = {
    "java": "Java (properties of the consumer)",
    "librdkafka": "librdkafka (properties of the consumer)",
    "aiokafka": "aiokafka (arguments of AIOKafkaConsumer)",
    "kohort": "kohort (arguments of Consumer)",
    "broker": "the broker (server.properties)",
}


def advise(options: argparse.Namespace) -> None:
    known = known_of(options)
    records = records_of(options)
    with reporting_invalid_records(options):
        advice = compute_advice(options.group, records, known=known)
        late = late_returns(at_once(act_rows_steps(options.group, records)))
    value = _as_json(options.group, advice) | {"late_returns": late}
    print_result(options, value, chain(_lines(options.group, advice), _late_lines(late)))


def known_of(options: argparse.Namespace) -> Json:
    """The settings given with --known. Raises UsageError."""
    try:
        return known_settings(options.known)
    except ValueError as error:
        raise UsageError(f"--known {error}") from error


def records_of(options: argparse.Namespace) -> list[Json]:
    """The group's records, from the files or the broker that the options name.

    Raises:
        CommandError: no records, or they cannot be read.
    """
    if options.files:
        return records_from_files(options, options.group)
    records: list[Json] = history_of(options, kind=None)["rebalances"]
    return records


@contextmanager
def reporting_invalid_records(options: argparse.Namespace) -> Iterator[None]:
    """Turns ValueError into a CommandError that names the source of the records."""
    try:
        yield
    except ValueError as error:
        if options.files:
            raise UsageError(f"{', '.join(options.files)}: {error}") from error
        raise UnavailableError(f"the broker's response is {error}") from error


def _lines(group: str, advice: Advice | None) -> Iterator[str]:
    name = f"Group {shown(group)}"
    if advice is None:
        yield f"{name} has not rebalanced, as far as its history goes back."
        return
    trace = advice.trace
    span = days_and_hours(trace.end_ms - trace.begin_ms).replace(NBSP, " ")
    yield f"{name}, {counted(trace.rebalances, 'rebalance')} in {span}. {advice.verdict}"
    if advice.is_short:
        return
    yield ""
    rows = [_row("  as recorded", advice.recorded)]
    for prediction in advice.front:
        mark = "*" if prediction == advice.best else " "
        text = changes(advice.recorded.setting, prediction.setting)
        rows.append(_row(f"{mark} {text}", prediction))
    if advice.quicker is not None:
        rows.append(_row(f"  {choice(advice.recorded, advice.quicker)}", advice.quicker))
    yield from table(HEAD, rows)
    yield ""
    yield advice.check
    yield from advice.unranked
    yield from (f"not known: {text}" for text in advice.unknown)
    if advice.best is not None:
        yield from _to_set(advice, advice.best)


def _late_lines(late: Json | None) -> Iterator[str]:
    if late is not None:
        yield ""
        text = reason(late, listed(late["processes"])).replace(NBSP, " ")
        yield f"{enough(late)}: {text}"


def _row(setting: str, prediction: Prediction) -> tuple[Cell, ...]:
    stopped = duration(prediction.stopped_ms)
    if is_by_chance(prediction):
        stopped += f" ± {duration(prediction.stopped_spread_ms)}"
    unread, notice = duration(prediction.unread_ms), duration(prediction.notice_ms)
    return setting, prediction.rebalances, stopped, unread, notice


def _to_set(advice: Advice, best: Prediction) -> Iterator[str]:
    yield ""
    yield f"* {changes(advice.recorded.setting, best.setting)}. What to set:"
    for client, lines in _config(advice, best).items():
        yield ""
        yield f"  {_NAMES[client]}"
        yield from (f"    {line}" for line in lines)


def _config(advice: Advice, prediction: Prediction) -> ConfigLines:
    trace = advice.trace
    libraries = libraries_of(trace.software)
    return config_lines(trace.recorded, prediction.setting, trace.assignor, libraries)


def _as_json(group: str, advice: Advice | None) -> Json:
    """Return the advice as JSON; `recorded` is null if the group has not rebalanced."""
    if advice is None:
        return {"group": group, "recorded": None, "choices": [], "check": None, "unknown": []}
    trace = advice.trace
    return {
        "group": group,
        "history": {
            "rebalances": trace.rebalances,
            "stopped_ms": trace.stopped_ms,
            "from_ms": trace.begin_ms,
            "until_ms": trace.end_ms,
        },
        "recorded": _figures(advice.recorded),
        "choices": [
            {
                "is_best": prediction == advice.best,
                "changes": changes(advice.recorded.setting, prediction.setting),
                "text": describe(advice.recorded, prediction),
                **_figures(prediction),
                "config": _config(advice, prediction),
            }
            for prediction in advice.front
        ],
        "quicker_member": None
        if advice.quicker is None
        else {
            "member": advice.quicker.quicker,
            "text": describe(advice.recorded, advice.quicker),
            **_figures(advice.quicker),
        },
        "check": advice.check,
        "is_off": advice.is_off,
        "unranked": list(advice.unranked),
        "unknown": list(advice.unknown),
    }


def _figures(prediction: Prediction) -> Json:
    figures = asdict(prediction)
    return {"setting": figures.pop("setting"), "notice_ms": prediction.notice_ms, **figures}
