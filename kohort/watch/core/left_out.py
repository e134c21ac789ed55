"""Selects the groups that are not followed."""

import re
from dataclasses import dataclass
from typing import Final

OWN_GROUP: Final = "kohort-watch"
"""The consumer group of the watchers that store history in the same topic."""

DEFAULT: Final = re.compile(rf"{OWN_GROUP}|console-consumer-.*")
"""OWN_GROUP, and the groups of Kafka's console consumers."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """The ids of groups that are not followed. A pattern must match the whole id."""

    only: re.Pattern[str] | None = None
    """If set, only groups whose ids match are followed."""
    besides: re.Pattern[str] | None = None
    """If set, groups whose ids match are not followed, even if `only` matches them."""

    def __contains__(self, group: object) -> bool:
        if not isinstance(group, str):
            return False
        if self.only is not None and not self.only.fullmatch(group):
            return True
        return self.besides is not None and self.besides.fullmatch(group) is not None
