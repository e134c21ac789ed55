"""One word has one meaning in names, and numbers agree with their nouns."""

import ast
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3] / "kohort"

MEANINGS = {
    # What the event loop does between two looks at its sockets.
    "turn": (
        "broker/core/purgatory",
        "broker/network",
        "broker/runtime",
        "broker/topics/fetch",
        "testing/virtual",
    ),
    # What a core does without an interruption.
    "step": (
        "broker/console/records",
        "broker/coordinator",
        "broker/core/group/classic",
        "broker/core/group/encoding",
        "broker/core/history",
        "broker/core/partition",
        "broker/core/security/scram",
        "broker/core/steps",
        "broker/handlers/produce",
        "broker/history",
        "broker/http/group_pages",
        "broker/runtime",
        "broker/security/gate",
        "broker/security/passwords",
        "broker/security/tokens",
        "broker/storage/compaction",
        "broker/storage/log/transactions",
        "broker/storage/segment/transaction_index",
        "broker/topics/compaction",
        "broker/transactions",
        "protocol/records/compression",
        "testing/kit/groups",
    ),
    # How long a job tries again.
    "patience": ("pipeline/options",),
}
"""By word, the modules in which it has its meaning, each of which has the word; the beginning of a
path stands for all. Elsewhere a name with the word means something else, and there is a better one:
a lock, a slice, an order; an action, an interval, a chunk; a timeout."""

_WORD = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")
_SAYING = {"announce", "print", "report", "_report"} | {"debug", "info", "warning", "error"}
"""Functions that say something to people."""
_PLURAL = re.compile(r"\s([a-z]+s)\b")
_LIMIT = re.compile(r"(?:at most|may open) $", re.IGNORECASE)
"""What stands before a limit, which is never 1."""
_NO_PLURALS = {"as", "bytes", "has", "is", "its", "ms", "seconds", "this", "was"}
"""Verbs and the like; and units, with which "1 seconds" is rare and no one minds."""


def names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The names that a module defines, with their lines."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield node.lineno, name
            case ast.ClassDef(name=name):
                yield node.lineno, name
            case ast.arg(arg=name):
                yield node.lineno, name
            case ast.Name(id=name, ctx=ast.Store()):
                yield node.lineno, name
            case ast.Attribute(attr=name, ctx=ast.Store()):
                yield node.lineno, name


def misnamed(module: str, source: str) -> list[str]:
    """The names with a word of `MEANINGS` in a module where it has another meaning."""
    forbidden = {word for word, places in MEANINGS.items() if not module.startswith(places)}
    defined = [*names(ast.parse(source)), (0, module.rpartition("/")[2])]
    return [f"{module}:{line}: {name}" for line, name in defined if forbidden & _words_of(name)]


def words_by_module() -> dict[str, set[str]]:
    """The words of `MEANINGS` in the names that each module defines."""
    return {
        path.relative_to(ROOT).with_suffix("").as_posix(): {
            word
            for _, name in names(ast.parse(path.read_text()))
            for word in MEANINGS.keys() & _words_of(name)
        }
        for path in ROOT.rglob("*.py")
    }


def _words_of(name: str) -> set[str]:
    return {one.lower().removesuffix("s") for one in _WORD.findall(name)}


def many(source: str) -> list[str]:
    """What is said of a number with a plural, whether the number is 1 or not."""
    found = []
    for call in ast.walk(ast.parse(source)):
        if not isinstance(call, ast.Call):
            continue
        name = getattr(call.func, "attr", getattr(call.func, "id", ""))
        if name not in _SAYING:
            continue
        for text in call.args:
            found += [f"{text.lineno}: {said}" for said in _numbers(text)]
    return found


def _numbers(text: ast.expr) -> Iterator[str]:
    if isinstance(text, ast.Constant) and isinstance(text.value, str):
        for before, behind in pairwise(text.value.split("%d")):
            if not _LIMIT.search(before):
                yield from _plurals(behind)
    if isinstance(text, ast.JoinedStr):
        for value, rest in pairwise(text.values):
            if isinstance(value, ast.FormattedValue) and isinstance(rest, ast.Constant):
                yield from _plurals(str(rest.value))


def _plurals(behind: str) -> Iterator[str]:
    found = _PLURAL.match(behind)
    if found and found[1] not in _NO_PLURALS:
        yield found[1]


def test_a_word_has_one_meaning_in_names() -> None:
    assert [
        place
        for path in sorted(ROOT.rglob("*.py"))
        for place in misnamed(path.relative_to(ROOT).with_suffix("").as_posix(), path.read_text())
    ] == []


def test_no_module_is_allowed_a_word_that_it_does_not_have() -> None:
    found = words_by_module()
    assert [
        f"{place}: {word}"
        for word, places in MEANINGS.items()
        for place in places
        if not any(word in words for module, words in found.items() if module.startswith(place))
    ] == []


def test_one_of_something_is_not_called_several() -> None:
    assert [
        f"{path.relative_to(ROOT)}:{place}"
        for path in sorted(ROOT.rglob("*.py"))
        for place in many(path.read_text())
    ] == []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("broker/http/pages", "class Pages:\n    def run(self):\n        self._turn = Lock()"),
        ("client/core/group/membership", "def next_step(now_ms: int): ..."),
        ("client/core/group/steps", ""),
        ("broker/network/listener", "def next_step(): ..."),
        ("broker/core/security/prefixes", "STEPS_MAX = 8"),
        ("pipeline/advisor/words", "STEP_MS = 1_000"),
        ("wire/cluster", "class Patience: ..."),
        ("cli/produce", "def send(turns): ..."),
    ],
)
def test_another_meaning_is_found(module: str, source: str) -> None:
    assert len(misnamed(module, source)) == 1


def test_its_own_meaning_and_other_words_are_let_be() -> None:
    source = "def take_turns(step): ...\nreturned = stepped = impatient = 1"
    assert misnamed("broker/runtime/steps", source) == []


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ('announce(f"{path}: {len(groups)} groups")', 1),
        ('logger.info("%d topics of %d users", topics, users)', 2),
        ("announce(f\"{counted(len(groups), 'group')} in {path}, {took_s:.1f} s\")", 0),
        ('announce(f"{path} is there")', 0),
        ('logger.info("at most %d topics", topics)', 0),
        ('logger.info("topics: %d", len(topics))', 0),
    ],
)
def test_a_plural_that_is_put_back_is_found(source: str, count: int) -> None:
    assert len(many(source)) == count
