"""What a benchmark is made of: contenders that take turns, and rows of figures.

A subject is a module with

    TITLE = "Start and memory"

    def measure(bench: Bench) -> Iterable[Row]: ...

Contenders alternate (ours, theirs, ours, theirs ...), so that whatever else the machine does falls
on both. A figure is the median of several runs, shown with its extremes. A measurement checks the
answers it gets: a fast wrong answer is an error, not a figure.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, TypeVar

if TYPE_CHECKING:  # A generator of load, which starts often, has no brokers.
    from benchmarks.brokers import Contender

P = TypeVar("P")

Better = Literal["less", "more"]


@dataclass(frozen=True, slots=True)
class Figure:
    """Several measurements of one thing."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.values)


@dataclass(frozen=True, slots=True)
class Pair:
    """What the contenders showed of one thing."""

    kohort: Figure
    kafka: Figure | None = None
    """Kafka's figure; None without a Kafka or without a counterpart in Kafka."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table."""

    name: str
    unit: str
    figures: Pair
    better: Better = "less"
    aim: float | None = None
    """What the ratio ours / theirs should be at most (or at least, if more is better)."""
    limit: float | None = None
    """The same for the figure itself, in its unit."""

    @property
    def ratio(self) -> float | None:
        kafka = self.figures.kafka
        if kafka is None or kafka.median == 0:
            return None
        return self.figures.kohort.median / kafka.median

    @property
    def misses(self) -> bool:
        """Whether it falls short of what it should be."""
        ours = self.figures.kohort.median
        return self._falls_short(self.ratio, self.aim) or self._falls_short(ours, self.limit)

    def _falls_short(self, value: float | None, bound: float | None) -> bool:
        if value is None or bound is None:
            return False
        return value > bound if self.better == "less" else value < bound


class Subject(Protocol):
    """A module of benchmarks."""

    TITLE: str

    def measure(self, bench: Bench) -> Iterable[Row]: ...


Measured = Mapping[str, float]
"""What one run of one contender gave, by name."""


@dataclass(frozen=True, slots=True)
class Bench:
    """How to measure, as asked for on the command line."""

    runs: int
    directory: Path
    """Scratch space, on the disk that is to be measured."""
    contenders: Sequence[Contender]
    """Kohort first, and Kafka if it is there."""
    scale: float = 1.0
    """A factor for sizes and durations; below 1 to test a measurement, not to measure."""

    only: str = ""
    """Leave out what does not have this in its name, where a subject has parts that stand alone."""

    def wanted(self, parts: Iterable[P], name: Callable[[P], str]) -> list[P]:
        """Select the `parts` that are not left out.

        Raises:
            ValueError: that is all of them.
        """
        named = {name(part): part for part in parts}
        found = [part for called, part in named.items() if _plain(self.only) in _plain(called)]
        if not found:
            raise ValueError(f"--only {self.only} leaves nothing of {', '.join(named)}")
        return found

    @property
    def is_trial(self) -> bool:
        """Whether the figures do not matter, so that nothing has to be warmed up."""
        return self.scale < 1

    def scaled(self, amount: float, least: float = 1.0) -> float:
        """`amount`, or less of it, but some."""
        return max(least, amount * self.scale) if self.is_trial else amount

    def alternate(self, measure: Callable[[Contender], Measured]) -> dict[str, Pair]:
        """Measure each contender in turn, `runs` times.

        What only Kohort has is compared with nothing.
        """
        results: dict[str, list[Measured]] = {one.name: [] for one in self.contenders}
        for run in range(self.runs):
            for contender in self.contenders:
                progress(f"  run {run + 1} of {self.runs}: {contender.name}")
                results[contender.name].append(measure(contender))
        progress("")
        ours, *others = map(figures, results.values())
        theirs = others[0] if others else {}
        return {name: Pair(figure, theirs.get(name)) for name, figure in ours.items()}

    def measure_ours(self, measure: Callable[[], Measured]) -> dict[str, Pair]:
        """Measure something of ours that has no counterpart, `runs` times."""
        results = []
        for run in range(self.runs):
            progress(f"  run {run + 1} of {self.runs}")
            results.append(measure())
        progress("")
        return {name: Pair(figure) for name, figure in figures(results).items()}


def _plain(name: str) -> str:
    """1,000 is 1000 as well."""
    return name.lower().replace(",", "")


def figures(results: Sequence[Measured]) -> dict[str, Figure]:
    """The figures of several runs, by name."""
    names = results[0] if results else ()
    return {name: Figure(tuple(one[name] for one in results)) for name in names}


def progress(text: str) -> None:
    """Say on standard error what is being done; not part of the output."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\033[K{text}")
    elif text:
        sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
