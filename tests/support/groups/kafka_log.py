"""What Kafka's log says about its groups, and how conclusions of a watcher compare with it."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, TypeAlias

from kohort.insight.broker_log.lines import Failed, Left, NotJoined, Preparing, read
from kohort.insight.broker_log.reasons import departure, parse_reason

Json: TypeAlias = dict[str, Any]

_NEAR_MS: Final = 3_000
_CONSUMER_FATE: Final = re.compile(
    r"^\[(\S+ [\d:,]+)\].*\[GroupId (\S+)\] Member (\S+) "
    r"(left the consumer group|fenced from the group because the member session expired)"
)


class Beginning(NamedTuple):
    at_ms: int
    kind: str
    member_id: str | None


class KafkaLog:
    """The departures and causes of a log at level INFO, with times in UTC."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._departures: dict[tuple[str, str], list[tuple[int, str]]] = defaultdict(list)
        """When and how members went, by group and member id."""
        self._beginnings: dict[tuple[str, int], list[Beginning]] = defaultdict(list)
        """By group and the generation before."""
        for line in lines:
            self._take(line)

    def _take(self, text: str) -> None:
        match = _CONSUMER_FATE.match(text)
        if match is not None:
            at = datetime.strptime(match[1], "%Y-%m-%d %H:%M:%S,%f").replace(tzinfo=UTC)
            kind = "left" if match[4].startswith("left") else "session_expired"
            self._departures[match[2], match[3]].append((round(at.timestamp() * 1000), kind))
        line = read(text, UTC)
        if line is None:
            return
        at_ms, fact = line
        match fact:
            case Left():
                kind = departure(fact.text).removeprefix("member_")
                self._departures[fact.group, fact.member.member_id].append((at_ms, kind))
            case Failed():
                kind = "session_expired"
                self._departures[fact.group, fact.member.member_id].append((at_ms, kind))
            case NotJoined():
                for member_id in fact.member_ids:
                    self._departures[fact.group, member_id].append((at_ms, "rebalance_timeout"))
            case Preparing():
                cause = parse_reason(fact.reason)
                beginning = Beginning(at_ms, cause.kind, cause.member_id)
                self._beginnings[fact.group, fact.generation].append(beginning)

    def how_it_went(self, record: Json, member: Json) -> str | None:
        """Return how a member went in a rebalance; None if the log does not say."""
        times = self._departures.get((record["group"], member["member_id"]), ())
        if record["group_type"] == "classic":
            # It goes only once, but if its coordinator is killed before that is stored.
            over_ms = _over_ms(record) + _NEAR_MS
            return max((one for one in times if one[0] <= over_ms), default=(0, None))[1]
        at_ms = record["started_at_ms"] + (member["fate_ms"] or 0)
        near = [(abs(time_ms - at_ms), kind) for time_ms, kind in times]
        distance_ms, kind = min(near, default=(_NEAR_MS, None))
        return kind if distance_ms < _NEAR_MS else None

    def what_began(self, record: Json) -> Beginning | None:
        """Return what began a rebalance; None if the log does not say.

        A coordinator that is killed may begin one that is never stored; the next one has the same
        generation.
        """
        key = record["group"], record["previous_generation"]
        found = [one for one in self._beginnings.get(key, ()) if one.at_ms <= _over_ms(record)]
        return found[-1] if found and found[-1].kind != "unknown" else None


def _over_ms(record: Json) -> int:
    """When its join phase was certainly over."""
    timeline = record["timeline"]
    times = [timeline[name] for name in ("join_phase_ms", "finished_ms")]
    latest_ms: int = max(time for time in (*times, 0) if time is not None)
    return int(record["started_at_ms"]) + latest_ms


_LEAVING: Final = {"removed_by_admin": "left", "member_left": "left"}

Score: TypeAlias = Counter[tuple[str, bool]]
"""How many conclusions of each certainty are right, and wrong."""


class Conclusion(NamedTuple):
    """What a watcher says, and what the log says."""

    certainty: str
    said: str
    truth: str
    member_id: str | None
    record: Json

    @property
    def is_right(self) -> bool:
        """To be removed by an administrator is to leave, too."""
        return _LEAVING.get(self.said, self.said) == _LEAVING.get(self.truth, self.truth)


def fates(history: Iterable[Json], log: KafkaLog) -> list[Conclusion]:
    """Compare how members went."""
    conclusions = []
    for record in history:
        for member in record.get("members", ()):
            if "certainty" not in member:
                continue
            truth = log.how_it_went(record, member)
            if truth is not None:
                said, member_id = member["fate"], member["member_id"]
                conclusions.append(Conclusion(member["certainty"], said, truth, member_id, record))
    return conclusions


def causes(history: Iterable[Json], log: KafkaLog) -> list[Conclusion]:
    """Compare what began the rebalances of classic groups."""
    conclusions = []
    for record in history:
        if record.get("group_type") == "classic":
            truth = log.what_began(record)
            if truth is not None:
                trigger = record["trigger"]
                certainty, said = trigger["certainty"], trigger["kind"]
                member_id = trigger["member_id"]
                conclusions.append(Conclusion(certainty, said, truth.kind, member_id, record))
    return conclusions


def score(conclusions: Iterable[Conclusion]) -> Score:
    return Counter((one.certainty, one.is_right) for one in conclusions)
