"""Names and patterns of names, as shells match them: ``orders*``."""

from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Final

from kohort.cli.errors import NotFoundError

HELP: Final = "names, or patterns as 'orders*'"

_SPECIAL: Final = frozenset("*?[")


def is_pattern(text: str) -> bool:
    return not _SPECIAL.isdisjoint(text)


def matching(texts: Sequence[str], known: Callable[[], Iterable[str]]) -> list[str]:
    """Replace each pattern in `texts` by the known names that it matches; return each name once.

    Without `texts`, return all known names. A name without a pattern need not be known. `known` is
    called only if needed.

    Raises:
        NotFoundError: nothing matches a pattern.
    """
    if not texts:
        return sorted(known())
    names: dict[str, None] = {}
    for text in texts:
        found = [text]
        if is_pattern(text):
            every = set(known())
            # A group's name may contain `*` or `?`: an existing name matches only itself.
            found = found if text in every else sorted(n for n in every if fnmatchcase(n, text))
            if not found:
                raise NotFoundError(f"nothing matches {text!r}")
        names |= dict.fromkeys(found)
    return list(names)
