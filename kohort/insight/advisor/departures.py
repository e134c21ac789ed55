"""How well it is known how members left, in histories of `kohort watch`."""

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from kohort.insight.advisor.member_lifetimes import STAYS

UNCLEAR_MOST: Final = 0.1
"""Share of unclear departures up to which advice may rest on all."""

_LEFT: Final = frozenset({"left", "removed_by_admin"})
"""Reasons that need not be told apart: either way the member left before its session ended."""


class Departures(NamedTuple):
    """Numbers of members that left."""

    total: int
    likely: int
    unclear: int

    @property
    def are_unclear(self) -> bool:
        """Whether too many departures are unclear for advice that depends on them."""
        return self.unclear > UNCLEAR_MOST * self.total


def count_departures(rebalances: Iterable[Mapping[str, Any]]) -> Departures:
    """Count the departures; those in a broker's own history are certain."""
    total = likely = unclear = 0
    for record in rebalances:
        for member in record.get("members") or ():
            if member.get("fate") in STAYS or member.get("fate") == "replaced":
                continue
            total += 1
            if not set(member.get("candidates") or ["unknown"]) <= _LEFT:
                likely += member.get("certainty") == "likely"
                unclear += member.get("certainty") == "unclear"
    return Departures(total, likely, unclear)
