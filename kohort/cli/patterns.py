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
    """The names in `texts`, and those that its patterns match, each once; all known if it is empty.

    `known` is called only if needed. A name without a pattern is returned even if it is not known.

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
