"""The least that each client needs, as docs/access.md lists it, and what is missed without it."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

_DOCUMENT: Final = Path(__file__).parents[3] / "docs" / "access.md"
_HEADING: Final = "## The least that clients need\n"
_NAME: Final = re.compile(r"[A-Z]{2,}")
_ERROR: Final = re.compile(r"`([A-Z_]+)`")

DENIED: Final[Mapping[str, re.Pattern[str]]] = {
    "TOPIC_AUTHORIZATION_FAILED": re.compile(
        r"topic.?authorization.?(failed|exception)|authorized to access (this )?topic"
        r"|topic \S+ is not authorized",
        re.IGNORECASE,
    ),
    "GROUP_AUTHORIZATION_FAILED": re.compile(
        r"group.?authorization.?(failed|exception)|authorized to access (this )?group",
        re.IGNORECASE,
    ),
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": re.compile(
        r"transactional.?id.?authorization.?(failed|exception)", re.IGNORECASE
    ),
    "CLUSTER_AUTHORIZATION_FAILED": re.compile(
        r"cluster.?authorization.?(failed|exception)", re.IGNORECASE
    ),
}
"""How the libraries say each error, be it by its code, a class or a sentence."""


def named(text: str, names: Mapping[str, str]) -> str:
    """The text with real names in the place of TOPIC and the like."""
    return _NAME.sub(lambda found: names.get(found[0], found[0]), text)


class Need(NamedTuple):
    """One row of the table."""

    rule: str
    """What `kohort acl add USER` is told, with names such as TOPIC."""
    without: str
    """The errors of which the client gets one otherwise, or what it does not do."""

    def named(self, names: Mapping[str, str]) -> list[str]:
        """The rule as arguments, with real names."""
        return named(self.rule, names).split()

    def words(self) -> list[str]:
        """What stands for names in the rule, such as TOPIC."""
        return _NAME.findall(self.rule)

    def is_told(self, said: str) -> bool:
        """Whether the client has told one of these errors, if it is to tell any."""
        errors = [DENIED[name] for name in _ERROR.findall(self.without)]
        return not errors or any(error.search(said) for error in errors)


def _read() -> dict[str, list[Need]]:
    found: dict[str, list[Need]] = {}
    client = ""
    section = _DOCUMENT.read_text().partition(_HEADING)[2].partition("\n## ")[0]
    for line in section.splitlines():
        if not line.startswith("|") or line.startswith(("| Client |", "|---")):
            continue
        first, rule, without = (cell.strip() for cell in line.strip("|").split("|"))
        client = first or client
        found.setdefault(client, []).append(Need(rule.strip("`"), without))
    return found


NEEDS: Final[Mapping[str, list[Need]]] = _read()
"""By what the first column calls the client."""


def is_denied(said: str) -> bool:
    """Whether any of the errors has been told."""
    return any(pattern.search(said) for pattern in DENIED.values())
