"""Generates docs/consumer-reference.md from the consumer's sources; `make docs` writes it."""

import ast
import dataclasses
import enum
import inspect
import itertools
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from kohort import Consumer
from kohort.client.config import ConsumerConfig
from kohort.client.consumer.health import Health
from kohort.client.consumer.metrics import RUN_COUNTERS, RUN_GAUGES, ConsumerCollector
from kohort.client.core import errors
from kohort.client.net.security import SecuritySettings
from kohort.client.processing.figures import RunFigures
from kohort.client.processing.options import RunOptions

PATH: Final = Path("docs/consumer-reference.md")

_HEAD: Final = """\
<!-- Made from the docstrings in client/ by `make docs`; edit those. -->

# Reference of the consumer

[running-a-consumer.md](running-a-consumer.md) explains how it works.
"""

_SETTINGS: Final = """\
## Settings

Keyword arguments of `Consumer`. Times are in milliseconds, sizes in bytes.
"""

_RUN: Final = """\
## Arguments of `run` and `run_batches`

`run_batches` has `max_records` (500) and `max_wait_ms` (500), too.
"""

_ERRORS: Final = """\
## Errors

In `kohort.errors`; `help(errors)` draws their tree. Each has the broker's error code, if there is
one, as `code`.
"""

_HEALTH: Final = """\
## Fields of `health()`

Seconds are ages or durations; None: never, or not known. `as_dict()` has partitions' fields under
`partitions`.
"""

_RUN_FIGURES: Final = """\
`run` is about the current or last run. Its other fields are also metrics, below: {}.

| Field of `run` | Meaning |
|---|---|"""

_METRICS: Final = """\
## Metrics

Of `ConsumerCollector`, with the label `client_id`; "recent" means the last 30 to 60 seconds, as in
Java. `metrics()` returns those of the coordinator under Java's names: `rebalance-total` is
`kafka_consumer_consumer_coordinator_metrics_rebalance_total`. Metrics of a run exist once `run` was
called.

| Metric | Meaning |
|---|---|"""


def document() -> str:
    """Return the text of docs/consumer-reference.md."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield _HEAD
    yield _SETTINGS
    yield from _fields(ConsumerConfig, docs(ConsumerConfig) | docs(SecuritySettings))
    yield _RUN
    yield from _fields(RunOptions, docs(RunOptions))
    yield _ERRORS
    yield "| Error, and its base | Meaning |\n|---|---|"
    for name, error in vars(errors).items():
        if isinstance(error, type) and issubclass(error, errors.ConsumerError):
            bases = ", ".join(base.__name__ for base in error.__bases__)
            yield f"| `{name}({bases})` | {_cell(inspect.getdoc(error) or '')} |"
    yield ""
    yield _HEALTH
    yield "| Field | Meaning |\n|---|---|"
    for name, text in docs(Health).items():
        yield f"| `{name}` | {text} |"
    yield ""
    exported = [figure.field for figure in (*RUN_COUNTERS, *RUN_GAUGES)]
    yield _RUN_FIGURES.format(", ".join(f"`{name}`" for name in exported))
    for name, text in docs(RunFigures).items():
        if name not in exported:
            yield f"| `{name}` | {text} |"
    yield ""
    yield _METRICS
    for metric in ConsumerCollector(Consumer("topic", group_id="group")).collect():
        name = f"{metric.name}_total" if metric.type == "counter" else metric.name
        yield f"| `{name}` | {_cell(metric.documentation)} |"


def _fields(kind: type[Any], texts: dict[str, str]) -> Iterator[str]:
    yield "| Name | Default | Meaning |\n|---|---|---|"
    fields = {field.name: field for field in dataclasses.fields(kind) if field.init}
    for name, text in texts.items():
        if name in fields:
            yield f"| `{name}` | `{_default(fields[name].default)}` | {text} |"
    yield ""


def _default(value: object) -> str:
    if isinstance(value, enum.Enum):
        return f'"{value.name.lower()}"'
    if isinstance(value, type):
        return value.__name__
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return f"{value:_}" if is_number else repr(value).replace("'", '"')


def docs(kind: type[Any]) -> dict[str, str]:
    """Return the docstring of each field and public property, in order of declaration."""
    (declared,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(declared, ast.ClassDef)
    texts: dict[str, str] = {}
    for node, following in itertools.pairwise([*declared.body, ast.Pass()]):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            text = ast.literal_eval(following.value) if isinstance(following, ast.Expr) else ""
            texts[node.target.id] = _cell(text)
        elif isinstance(node, ast.FunctionDef) and _is_public_property(node):
            texts[node.name] = _cell(ast.get_docstring(node) or "")
    return texts


def _is_public_property(node: ast.FunctionDef) -> bool:
    names = [getattr(decorator, "id", "") for decorator in node.decorator_list]
    return "property" in names and not node.name.startswith("_")


def _cell(text: str) -> str:
    """The first paragraph on one line."""
    return " ".join(inspect.cleandoc(text).partition("\n\n")[0].split()).replace("|", "\\|")
