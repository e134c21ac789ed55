"""Where two normalised answers differ."""

from collections.abc import Iterator
from typing import NamedTuple

from tests.interop.same_answers.each import Value
from tests.interop.same_answers.normal import Identity

MISSING = "is not there"


class Mismatch(NamedTuple):
    """A field with two values."""

    path: str
    kafka: object
    kohort: object


class Correspondence:
    """Which of one broker's ids stands for which of the other's; one for one, once it is seen."""

    def __init__(self) -> None:
        self._there: dict[Identity, Identity] = {}
        self._back: dict[Identity, Identity] = {}

    def copy(self) -> "Correspondence":
        copied = Correspondence()
        copied._there, copied._back = dict(self._there), dict(self._back)
        return copied

    def holds(self, kafka: Identity, kohort: Identity) -> bool:
        """Whether they stand for each other. If neither was seen before, they do from now on."""
        known, known_back = self._there.get(kafka), self._back.get(kohort)
        if known is None and known_back is None and kafka.kind == kohort.kind:
            self._there[kafka], self._back[kohort] = kohort, kafka
            return True
        return known == kohort and known_back == kafka


def mismatches(
    kafka: Value, kohort: Value, ids: Correspondence, path: str = ""
) -> Iterator[Mismatch]:
    """Every field in which two normalised answers differ; `ids` learns from those that do not."""
    if isinstance(kafka, Identity) and isinstance(kohort, Identity):
        if not ids.holds(kafka, kohort):
            yield Mismatch(path, kafka, kohort)
    elif isinstance(kafka, dict) and isinstance(kohort, dict):
        for name in {**kafka, **kohort}:
            inner = f"{path}.{name}" if path else name
            yield from mismatches(kafka.get(name, MISSING), kohort.get(name, MISSING), ids, inner)
    elif isinstance(kafka, list) and isinstance(kohort, list) and len(kafka) == len(kohort):
        for index, (one, other) in enumerate(zip(kafka, kohort, strict=True)):
            yield from mismatches(one, other, ids, f"{path}[{index}]")
    elif type(kafka) is not type(kohort) or kafka != kohort:
        yield Mismatch(path, kafka, kohort)
