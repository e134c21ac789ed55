"""Episodes: what happened to one process of a group, such as a restart, from the causes and members
of its rebalances.

Each departure is paired with the arrival of the same process. A process is identified by its
instance id, otherwise by client id and host; a replaced pod has the same client id on another host.
Any other cause is an episode of its own. Each rebalance belongs to the episode of its trigger. A
cooperative rebalance that assigns what an earlier rebalance revoked belongs to the episode of the
earlier rebalance.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, Final, Self, TypeAlias

from kohort.groups.reasons import has_stopped_polling
from kohort.insight.analysis.rows import GONE, Avoided, Member, Rebalance, longest, process_name
from kohort.insight.event_rows import ENFORCED

RETURN_MS: Final = 600_000
"""A process that returns later than this counts as stopped and started, not as restarted."""
QUIET_MS: Final = 90_000
"""Maximum pause between the episodes of one act, such as the restarts of a deploy: it may wait
before each restart until the previous process is ready."""
REPLACED_MS: Final = 60_000
"""Maximum time between the departure of a process and the arrival of its successor under another
name (see `process_name`)."""
TOGETHER_MS: Final = 15_000
"""Processes that join within this time count as started together."""

_CAME: Final = frozenset({"member_added", "static_added", "static_replaced"})
_SLOW: Final = frozenset({"sync_expired", "rebalance_expired", "join_expired"})
WENT: Final = _SLOW | {
    "member_left",
    "removed_by_admin",
    "session_expired",
    "new_member_expired",
}
"""Kinds of causes that remove a member from the group."""
_KIND_OF_FATE: Final = {"left": "member_left", "rebalance_timeout": "join_expired"}
"""Kinds of causes by a member row's fate; any other fate has the same name as its kind."""
_REJOINED: Final = frozenset({"protocols_changed", "leader_rejoined", "forced_by_reason"})
_OF_REASON: Final = {
    "TOPIC_METADATA_CHANGE": "topic_change",
    ENFORCED: "enforced",
    "SUBSCRIPTION_CHANGE": "subscription_change",
    "UPGRADE": "subscription_change",
}
_OF_KIND: Final = {
    "topics_changed": "topic_change",
    "regex_resolved": "topic_change",
    "subscription_changed": "subscription_change",
    "protocols_changed": "subscription_change",
    "leader_rejoined": "rejoined",
    "forced_by_reason": "rejoined",
    # Causes whose member has no id, so that they are neither an arrival nor a departure.
    "member_added": "scale_out",
    "static_added": "scale_out",
    "member_left": "scale_in",
    "session_expired": "crash",
}
_OTHER_DEPARTURES: Final = {"removed_by_admin": "removed", "new_member_expired": "never_joined"}
_REVOKED: Final = "PARTITIONS_REVOKED"
_LOST: Final = "MEMBERSHIP_LOST"

Cause: TypeAlias = Mapping[str, Any]


@dataclass(slots=True)
class Moves:
    """Arrivals, departures and revocations, collected from the member rows passed to `add`."""

    of_rebalance: dict[int, list[Member]] = field(default_factory=dict)
    """Members that joined or left, by the sequence of the rebalance."""
    revoked: dict[int, set[str | None]] = field(default_factory=lambda: defaultdict(set))
    """Members that had to revoke partitions, by the sequence of the cooperative rebalance."""
    shared: set[str] = field(default_factory=set)
    """Client ids that several members had at the same time."""

    def add(self, members: Mapping[int, Sequence[Member]]) -> None:
        for sequence, rows in members.items():
            moved = [row for row in rows if row.fate == "new" or row.fate in GONE]
            if moved:
                self.of_rebalance[sequence] = moved
            clients: set[str] = set()
            for row in rows:
                if row.given_up and row.mode == "cooperative":
                    self.revoked[sequence].add(row.member_id)
                if row.client_id is None or row.fate == "replaced" or row.fate in GONE:
                    continue
                if row.client_id in clients:
                    self.shared.add(row.client_id)
                clients.add(row.client_id)


@dataclass(slots=True, eq=False)
class Move:
    """The arrival or departure of a process."""

    kind: str
    sequence: int
    at: int
    cause: Cause
    name: str
    arrival: "Move | None" = None
    """For a departure: the arrival of the member, if known."""
    is_first: bool = False
    """For an arrival: whether the group was empty."""
    gone_at: int | None = None
    """For an arrival: when the member left again."""

    @property
    def silent_at(self) -> int:
        """When the old process sent its last request, if known; else the time of this move."""
        if self.kind == "session_expired":
            return self.at - (self.cause.get("session_timeout_ms") or 0)
        return self.at - (self.cause.get("silent_ms") or 0)

    def has_same(self, other: "Move", *names: str) -> bool:
        mine, others = self.cause, other.cause
        return all(mine.get(name) and mine[name] == others.get(name) for name in names)


@dataclass(slots=True, eq=False)
class Episode:
    """A process's arrival, departure or both (as in a restart), or another cause of a rebalance."""

    at: int
    sequence: int
    went: Move | None = None
    came: Move | None = None
    other: str = ""
    """The kind of the episode, if no process joined or left."""
    names: set[str] = field(default_factory=set)
    is_replaced: bool = False
    """Whether the process that joined has another `process_name` than the one that left."""
    is_avoided: bool = False
    rebalances: list[Rebalance] = field(default_factory=list)
    second_halves: int = 0

    @classmethod
    def of(cls, went: Move | None, came: Move | None) -> Self:
        """Return the episode that consists of a departure, an arrival, or both."""
        moves = [move for move in (went, came) if move is not None]
        names = {move.name for move in moves}
        sequence = min(move.sequence for move in moves)
        return cls(moves[0].silent_at, sequence, went, came, names=names)

    @property
    def kind(self) -> str:
        if self.other:
            return self.other
        if self.went is not None:
            return _kind_of_departure(self.went, self.came, is_replaced=self.is_replaced)
        assert self.came is not None
        return _kind_of_arrival(self.came)

    @property
    def until(self) -> int:
        ends = [row.ended_at or row.started_at for row in self.rebalances]
        return max(self.at, self.came.at if self.came is not None else 0, longest(ends) or 0)


def _kind_of_arrival(came: Move) -> str:
    if came.kind == "static_replaced":
        return "restart"
    if came.is_first:
        return "start"
    return "rejoined" if came.cause.get("reason") == _LOST else "scale_out"


def _kind_of_departure(went: Move, came: Move | None, *, is_replaced: bool) -> str:
    is_same = came is not None and (
        came.has_same(went, "member_id")
        or came.cause.get("reason") == _LOST
        or came.cause.get("same_process") is True
    )
    if went.kind == "session_expired":
        return "pause" if is_same else _kind_of_expiry(went, came)
    if went.kind == "member_left":
        if is_same or _has_stopped_polling(went.cause):
            return "pause"
        back = "replaced" if is_replaced else "restart"
        return "scale_in" if came is None else back
    return _OTHER_DEPARTURES.get(went.kind, "too_slow")


def _kind_of_expiry(went: Move, came: Move | None) -> str:
    if went.cause.get("instance_id") is not None:
        return "static_gone" if came is None else "slow_restart"
    if came is None or came.at < went.at or came.cause.get("same_process") is False:
        return "crash"
    return "crash" if _keeps_id(came.cause) else "crash_or_pause"


def _keeps_id(cause: Cause) -> bool:
    """Whether the cause's member is a consumer (KIP-848), which rejoins under the same id after a
    pause. Ids of classic members begin with the client id.
    """
    is_classic = str(cause.get("member_id")).startswith(f"{cause.get('client_id')}-")
    return cause.get("group_type") == "consumer" and not is_classic


def _has_stopped_polling(cause: Cause) -> bool:
    return has_stopped_polling(
        cause.get("reason_text"),
        cause.get("unfetched_ms"),
        still_connected=cause.get("still_connected"),
    )


class EpisodeReader:
    """Builds the episodes of a group from its events, which are added in order."""

    def __init__(self, moves: Moves) -> None:
        self._moves = moves
        self._rebalances: list[Rebalance] = []
        self._second_halves: set[int] = set()
        self._causes: dict[int, Move | Episode] = {}
        """The move or episode to which each rebalance belongs, by the sequence of the rebalance."""
        self._others: list[Episode] = []
        self._of_move: dict[Move, Episode] = {}
        """The episodes of paired departures and arrivals."""
        self._here: dict[str | None, Move] = {}
        """Arrivals of present members, by their ids."""
        self._gone: dict[str | None, Move] = {}
        """Departures of former members, by their ids."""
        self._departures: list[Move] = []
        """Departures not paired with an arrival; those older than RETURN_MS move to `_lost`."""
        self._lost: list[Move] = []
        """Departures whose processes did not return within RETURN_MS."""
        self._arrivals: list[Move] = []
        """Arrivals that are not paired with a departure."""
        self._revoking: dict[str | None, tuple[int, int]] = {}
        """Sequence and time of the last cooperative rebalance that revoked partitions of a member.
        """
        self._unfinished_at: int | None = None
        """Start of the last rebalance that a stop of the broker interrupted."""

    def add(self, event: Rebalance | Avoided) -> None:
        trigger = {name.removeprefix("trigger_"): value for name, value in event._asdict().items()}
        if isinstance(event, Avoided):
            # Other triggers, such as a rejoin without effect, make no episode.
            if event.trigger_kind in _CAME:
                move = self._came(event.sequence, event.at or 0, trigger)
                if move is not None and move in self._of_move:
                    self._of_move[move].is_avoided = True
            return
        self._rebalances.append(event)
        started_at, sequence = event.started_at or 0, event.sequence
        at = event.trigger_at or started_at
        if event.restart_ms is not None:
            self._add_restart(event, trigger, at)
            return
        others = list(self._further(event, started_at))
        if event.trigger_member_id is None and event.trigger_kind in WENT:
            # The trigger has no member id if several members left at once: use the further cause of
            # the same kind.
            of_kind = (
                (dict(one), when) for one, when in others if one.get("kind") == trigger["kind"]
            )
            trigger, at = next(of_kind, (trigger, at))
        cause = self._cause(event, trigger, at) or self._first_half(event, trigger, at)
        self._causes[sequence] = cause or self._other(sequence, trigger, at)
        for further, further_at in others:
            moved = self._cause(event, further, further_at)
            if moved is None and _is_act_alone(further):
                self._other(sequence, further, further_at)
        for member_id in self._moves.revoked.get(sequence, ()):
            self._revoking[member_id] = (sequence, started_at)
        if event.outcome == "unfinished":
            self._unfinished_at = started_at

    def _add_restart(self, event: Rebalance, trigger: Cause, at: int) -> None:
        """Add the first rebalance after a restart of the broker: the restart explains all
        departures and arrivals in the rebalance.
        """
        episode = Episode(at, event.sequence, other="broker_restart")
        self._others.append(episode)
        self._causes[event.sequence] = episode
        for cause, moved_at in ((trigger, at), *self._further(event, event.started_at or 0)):
            kind, member_id = str(cause.get("kind")), cause.get("member_id")
            if member_id is None or kind not in _CAME | WENT:
                continue
            move = Move(kind, event.sequence, moved_at, cause, self._name(cause))
            of_process = Episode(at, event.sequence, other="broker_restart", names={move.name})
            self._of_move[move] = of_process
            if kind in _CAME:
                self._here[member_id] = move
            else:
                self._here.pop(member_id, None)
                self._gone[member_id] = move

    def _further(self, event: Rebalance, started_at: int) -> Iterator[tuple[Cause, int]]:
        """Yield the causes other than the trigger, with their times. Some are listed by the event;
        others only show in the rows of members that joined or left.
        """
        moved = {row.member_id: row for row in self._moves.of_rebalance.get(event.sequence, ())}
        named = {(event.trigger_member_id, event.trigger_kind in _CAME)}
        for further in event.further_causes or ():
            row = moved.get(further.get("member_id"))
            given = {name: value for name, value in further.items() if value is not None}
            cause = {} if row is None else row._asdict()
            cause |= given | {"group_type": event.group_type}
            named.add((further.get("member_id"), further.get("kind") in _CAME))
            yield cause, started_at + (further.get("after_ms") or 0)
        for row in moved.values():
            is_new, fate = row.fate == "new", str(row.fate)
            if (row.member_id, is_new) in named:
                continue
            kind = "member_added" if is_new else _KIND_OF_FATE.get(fate, fate)
            after_ms = row.join_received_ms if is_new else row.fate_ms
            cause = row._asdict() | {"kind": kind, "group_type": event.group_type}
            yield cause, started_at + max(after_ms or 0, 0)

    def _cause(self, event: Rebalance, cause: Cause, at: int) -> Move | None:
        """Apply a departure or an arrival, unless it was applied before; return None if the cause
        is neither.
        """
        if cause.get("kind") in _CAME:
            return self._came(event.sequence, at, cause, is_first=bool(event.initial))
        return self._went(event.sequence, at, cause) if cause.get("kind") in WENT else None

    def _went(self, sequence: int, at: int, cause: Cause) -> Move | None:
        member_id = cause.get("member_id")
        if member_id is None or member_id in self._gone:
            return self._gone.get(member_id)
        arrival = self._here.pop(member_id, None)
        move = Move(str(cause["kind"]), sequence, at, cause, self._name(cause), arrival)
        self._gone[member_id] = move
        if arrival is not None:
            arrival.gone_at = at
        if move.kind == "session_expired":
            # The process may have rejoined before the session of its former member expired.
            since = move.silent_at if cause.get("session_timeout_ms") else at - REPLACED_MS
            quick = takewhile(lambda came: came.at >= since, reversed(self._arrivals))
            successor = _match(
                move, [came for came in quick if came is not arrival and not came.is_first]
            )
            if successor is not None:
                self._arrivals.remove(successor)
                self._pair(move, successor)
                return move
        self._departures.append(move)
        return move

    def _came(self, sequence: int, at: int, cause: Cause, *, is_first: bool = False) -> Move | None:
        member_id = cause.get("member_id")
        if member_id is None or member_id in self._here:
            return self._here.get(member_id)
        self._gone.pop(member_id, None)
        name = self._name(cause)
        move = Move(str(cause["kind"]), sequence, at, cause, name, is_first=is_first)
        self._here[member_id] = move
        if move.kind == "static_replaced":
            self._pair(None, move)
            return move
        while self._departures and at - self._departures[0].at > RETURN_MS:
            self._lost.append(self._departures.pop(0))
        departure = _match(move, self._departures)
        if departure is None:
            self._arrivals.append(move)
        else:
            self._departures.remove(departure)
            self._pair(departure, move)
        return move

    def _pair(self, went: Move | None, came: Move) -> Episode:
        episode = Episode.of(went, came)
        for move in (went, came):
            if move is not None:
                self._of_move[move] = episode
        return episode

    def _first_half(self, event: Rebalance, cause: Cause, at: int) -> "Move | Episode | None":
        """If `event` assigns partitions that an earlier cooperative rebalance revoked, return the
        move or episode of that rebalance, else None.
        """
        reason = cause.get("reason")
        if cause.get("kind") not in _REJOINED or reason in _OF_REASON or cause.get("grown_topics"):
            return None
        revoked = self._revoking.pop(cause.get("member_id"), None)
        first = event.follows
        if first is None and revoked is not None and at - revoked[1] <= QUIET_MS:
            first = revoked[0]
        if first is None and reason == _REVOKED and len(self._rebalances) > 1:
            first = self._rebalances[-2].sequence
        found = self._causes.get(first) if first is not None else None
        if found is not None:
            self._second_halves.add(event.sequence)
        return found

    def _other(self, sequence: int, cause: Cause, at: int) -> Episode:
        kind, reason = str(cause.get("kind")), str(cause.get("reason"))
        if cause.get("grown_topics") and kind in _REJOINED:
            kind = "topic_change"
        elif kind in _REJOINED and reason in _OF_REASON:
            kind = _OF_REASON[reason]
        elif kind in _REJOINED and self._has_restarted(at):
            kind = "broker_restart"
        episode = Episode(at, sequence, other=_OF_KIND.get(kind, kind))
        if cause.get("member_id") is not None:
            episode.names.add(self._name(cause))
        self._others.append(episode)
        return episode

    def _has_restarted(self, at: int) -> bool:
        return self._unfinished_at is not None and at - self._unfinished_at <= QUIET_MS

    def _name(self, cause: Cause) -> str:
        return process_name(cause, self._moves.shared)

    def finish(self) -> list[Episode]:
        """Return all episodes, with their rebalances."""
        self._pair_replaced()
        for move in (*self._lost, *self._departures, *self._arrivals):
            if move in self._of_move:
                continue
            is_departure = move.kind in WENT
            self._of_move[move] = Episode.of(*((move, None) if is_departure else (None, move)))
        for event in self._rebalances:
            cause = self._causes[event.sequence]
            episode = self._of_move[cause] if isinstance(cause, Move) else cause
            episode.rebalances.append(event)
            episode.second_halves += event.sequence in self._second_halves
        # The two moves of a pair have the same episode.
        return list(dict.fromkeys([*self._of_move.values(), *self._others]))

    def _pair_replaced(self) -> None:
        """Pair processes that left with processes that joined at about the same time under another
        `process_name`, as in a deploy of pods.
        """
        arrivals = sorted(self._arrivals, key=lambda move: move.at)
        for went in (*self._lost, *self._departures):
            first = bisect_left(arrivals, went.at - REPLACED_MS, key=lambda move: move.at)
            end = bisect_right(arrivals, went.at + REPLACED_MS, key=lambda move: move.at)
            near = [
                came
                for came in arrivals[first:end]
                if went.kind == "member_left"
                and not _has_stopped_polling(went.cause)
                and came not in self._of_move
                and not came.is_first
                and not (went.arrival and abs(went.arrival.at - came.at) <= TOGETHER_MS)
                and (came.gone_at is None or came.gone_at > went.at)
            ]
            if near:
                came = min(near, key=lambda move: abs(move.at - went.at))
                self._pair(went, came).is_replaced = True


def _match(move: Move, others: Sequence[Move]) -> Move | None:
    """Return the first of `others` that is of the same process as `move`: of the same instance id,
    otherwise member id, client id and host, or client id alone.
    """
    for names in (("instance_id",), ("member_id",), ("client_id", "host"), ("client_id",)):
        for other in others:
            are_static = move.cause.get("instance_id") and other.cause.get("instance_id")
            if move.has_same(other, *names) and (not are_static or names[0] == "instance_id"):
                return other
    return None


def _is_act_alone(cause: Cause) -> bool:
    """Whether a cause is an episode even if not the trigger, such as a change of topics."""
    kind = cause.get("kind")
    return _OF_KIND.get(str(kind)) in _OF_REASON.values() and (
        kind not in _REJOINED or cause.get("reason") in _OF_REASON
    )
