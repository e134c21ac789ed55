"""Clients of all times: which version of each request they send."""

from collections.abc import Iterable
from typing import Final, NamedTuple

import pytest


class Age(NamedTuple):
    """Versions that were the newest ones together."""

    name: str
    join: int
    sync: int
    heartbeat: int
    leave: int
    commit: int
    fetch: int
    describe: int

    @property
    def has_required_ids(self) -> bool:
        """KIP-394: no member joins without an id of the broker's."""
        return self.join >= 4

    @property
    def has_instances(self) -> bool:
        """KIP-345: static members."""
        return self.join >= 5


FIRST: Final = Age("kafka-0.9", 0, 0, 0, 0, 2, 1, 0)
REBALANCE_TIMEOUT: Final = Age("kafka-0.10.1", 1, 0, 0, 0, 2, 2, 0)
THROTTLED: Final = Age("kafka-0.11", 2, 1, 1, 1, 3, 3, 1)
BEFORE_REQUIRED_IDS: Final = Age("kafka-2.0", 3, 2, 2, 2, 5, 4, 2)
REQUIRED_IDS: Final = Age("kafka-2.2", 4, 2, 2, 2, 6, 5, 3)
STATIC: Final = Age("kafka-2.3", 5, 3, 3, 3, 7, 5, 4)
FLEXIBLE: Final = Age("kafka-2.4", 6, 4, 4, 4, 8, 6, 5)
PROTOCOL_TYPES: Final = Age("kafka-2.5", 7, 5, 4, 4, 8, 7, 5)
REASONS: Final = Age("kafka-3.1", 8, 5, 4, 5, 8, 8, 5)
NEWEST: Final = Age("kafka-4.4", 9, 5, 4, 5, 9, 9, 6)

AGES: Final = (
    FIRST,
    REBALANCE_TIMEOUT,
    THROTTLED,
    BEFORE_REQUIRED_IDS,
    REQUIRED_IDS,
    STATIC,
    FLEXIBLE,
    PROTOCOL_TYPES,
    REASONS,
    NEWEST,
)
STATIC_AGES: Final = tuple(age for age in AGES if age.has_instances)

_ALWAYS: Final = frozenset({FIRST, REQUIRED_IDS, STATIC, NEWEST})


def of_ages(ages: Iterable[Age]) -> list[object]:
    """Parameters of a test; without --long only those between which most has changed."""
    return [
        pytest.param(age, id=age.name, marks=() if age in _ALWAYS else pytest.mark.long)
        for age in ages
    ]
