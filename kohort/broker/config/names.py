"""Recognises misspelt names of settings."""

from collections.abc import Iterable
from typing import Final

_EDITS_MAX: Final = 2
_LETTERS_OF_AN_EDIT: Final = 5
"""Letters of a name per allowed edit; with fewer, node.ip would match node.id."""


def misspelt(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that `name` is a misspelling of; None if it resembles none of them.

    An edit inserts, deletes or replaces a letter, or swaps two neighbours (Damerau and
    Levenshtein). A misspelling is at most two edits away, and at most one edit for every five
    letters of the known name.
    """
    known = tuple(known)
    for edits in range(_EDITS_MAX + 1):
        for other in known:
            if edits <= len(other) // _LETTERS_OF_AN_EDIT and _is_within(name, other, edits):
                return other
    return None


def _is_within(name: str, other: str, edits: int) -> bool:
    """Whether at most this many edits turn one name into the other."""
    if abs(len(name) - len(other)) > edits:
        return False
    if not name or not other:
        return True
    if name[0] == other[0]:
        return _is_within(name[1:], other[1:], edits)
    if not edits:
        return False
    left = edits - 1
    return (
        _is_within(name[1:], other[1:], left)
        or _is_within(name[1:], other, left)
        or _is_within(name, other[1:], left)
        or (name[:2] == other[1::-1] and _is_within(name[2:], other[2:], left))
    )
