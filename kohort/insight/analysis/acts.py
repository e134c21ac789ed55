"""Finds acts: what was done to the processes of a group, with the rebalances that each act caused.

A history has a cause for each rebalance: a member left, a member joined. An act combines the causes
that belong together: a process restarts, a version is deployed, a process crashes. Events are first
combined into episodes of single processes (`episodes.py`). Several episodes of one kind in a row
are one act; restarts in a row are a deploy.

An act has no rebalance if the group avoided it, or was already in another act's rebalance.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from kohort.groups.steps import Steps
from kohort.insight.analysis.episodes import (
    QUIET_MS,
    TOGETHER_MS,
    WENT,
    Episode,
    EpisodeReader,
    Moves,
)
from kohort.insight.analysis.rows import Avoided, Rebalance, longest, total
from kohort.insight.tables.findings import Act

PROCESSES_LISTED: Final = 100

_CLEARLY: Final = 1.5
_RESTARTS: Final = frozenset({"restart", "slow_restart", "replaced"})
_IN_A_ROW: Final = frozenset(
    {
        *("start", "scale_out", "scale_in", "removed", "static_gone", "broker_restart"),
        *("topic_change", "subscription_change", "enforced", "rejoined"),
    }
)
"""Kinds whose successive episodes form one act. Each crash or pause is an act by itself."""


def act_steps(
    rebalances: Sequence[Rebalance], avoided: Sequence[Avoided], moves: Moves
) -> Steps[list[Act]]:
    """Return the acts of a group in chronological order, computed in one step per event."""
    reader = EpisodeReader(moves)
    events: list[Rebalance | Avoided] = [*rebalances, *avoided]
    for event in sorted(events, key=lambda event: event.sequence):
        reader.add(event)
        yield
    runs = sorted(_runs(reader.finish()), key=lambda run: (run[1][0].at, run[1][0].sequence))
    return [_act(ordinal, kind, run) for ordinal, (kind, run) in enumerate(runs)]


def _runs(episodes: Iterable[Episode]) -> Iterator[tuple[str, list[Episode]]]:
    """Yield the kind and the episodes of each act."""
    ordered = sorted(episodes, key=lambda episode: (episode.at, episode.sequence))
    rest = [episode for episode in ordered if episode.kind not in _RESTARTS]
    restarts = _Run()
    for episode in ordered:
        if episode.kind not in _RESTARTS:
            continue
        if restarts.episodes and restarts.gap_ms(episode) > QUIET_MS:
            yield from _restarted(restarts.episodes, rest)
            restarts = _Run()
        restarts.add(episode)
        if end := _end_of_deploy(restarts):
            yield from _restarted(restarts.episodes[:end], rest)
            restarts = _Run(restarts.episodes[end:])
    yield from _restarted(restarts.episodes, rest)
    open_runs: dict[str, _Run] = {}
    for episode in sorted(rest, key=lambda episode: (episode.at, episode.sequence)):
        kind = episode.kind
        starting = open_runs.get("start")
        if kind == "scale_out" and starting and starting.gap_ms(episode) <= TOGETHER_MS:
            kind = "start"
        if kind not in _IN_A_ROW:
            yield kind, [episode]
            continue
        run = open_runs.get(kind)
        if run is not None and run.gap_ms(episode) <= QUIET_MS:
            run.add(episode)
            continue
        if run is not None:
            yield kind, run.episodes
        open_runs[kind] = _Run([episode])
    for kind, run in open_runs.items():
        yield kind, run.episodes


class _Run:
    """Successive episodes of an act, in order."""

    def __init__(self, episodes: Iterable[Episode] = ()) -> None:
        self.episodes: list[Episode] = []
        self._ends: list[int] = []
        """The latest end of the episodes up to each index, so that `gap_ms` needs no search."""
        for episode in episodes:
            self.add(episode)

    def add(self, episode: Episode) -> None:
        self.episodes.append(episode)
        self._ends.append(max([episode.until, *self._ends[-1:]]))

    def gap_ms(self, episode: Episode, place: int = 0) -> int:
        """Return the time from the end of the first `place` episodes (0: all) to `episode`."""
        return episode.at - self._ends[place - 1]


def _end_of_deploy(restarts: _Run) -> int:
    """Return how many of the restarts form a deploy that has ended; 0 if it may continue. It has
    ended if the last restart is of a process that the deploy had restarted already.
    """
    episodes = restarts.episodes
    *before, last = episodes
    again = [place for place, other in enumerate(before) if not other.names.isdisjoint(last.names)]
    if not again:
        return 0
    # The deploy ended right before the last restart, unless the gap before an earlier restart is
    # clearly longer.
    gaps_ms = {
        end: restarts.gap_ms(episodes[end], end) for end in range(again[-1] + 1, len(episodes))
    }
    longest_ms = max(gaps_ms.values())
    is_clear = longest_ms > _CLEARLY * max(gaps_ms[len(before)], 0)
    return max(end for end in gaps_ms if not is_clear or gaps_ms[end] == longest_ms)


def _restarted(run: Sequence[Episode], rest: list[Episode]) -> Iterator[tuple[str, list[Episode]]]:
    """Yield several restarts as one deploy, a single one as a restart. If the new process of the
    single one has another name than the old one, append its departure and arrival to `rest`
    instead, as two episodes: they may be unrelated.
    """
    if len(run) > 1:
        yield "deploy", list(run)
    elif run and not run[0].is_replaced:
        yield run[0].kind, list(run)
    for episode in run if len(run) == 1 and run[0].is_replaced else ():
        rest += _apart(episode)


def _apart(episode: Episode) -> Iterator[Episode]:
    went, came = episode.went, episode.came
    assert went is not None
    assert came is not None
    for move, parts in ((went, (went, None)), (came, (None, came))):
        part = Episode.of(*parts)
        part.rebalances = [
            row for row in episode.rebalances if (row.trigger_kind in WENT) is (move is went)
        ]
        yield part


def _act(ordinal: int, kind: str, run: Sequence[Episode]) -> Act:
    rebalances = [row for episode in run for row in episode.rebalances]
    sequences = [
        *(episode.sequence for episode in run),
        *(row.sequence for row in rebalances),
        *(episode.came.sequence for episode in run if episode.came is not None),
    ]
    pairs = [(episode.went, episode.came) for episode in run if episode.came is not None]
    late = [
        (came.at - went.at, went)
        for went, came in pairs
        if went is not None
        and went.kind == "session_expired"
        and went.cause.get("instance_id") is not None
        and came.at >= went.at
    ]
    away = [
        came.cause.get("silent_ms") if went is None else max(came.at - went.silent_at, 0)
        for went, came in pairs
    ]
    names = sorted({min(episode.names) for episode in run if episode.names})
    ended_at = longest([episode.until for episode in run])
    return Act(
        ordinal,
        kind,
        min(sequences),
        max(sequences),
        run[0].at,
        ended_at,
        len(names),
        names[:PROCESSES_LISTED],
        sorted(row.sequence for row in rebalances),
        len(rebalances),
        sum(episode.second_halves for episode in run),
        sum(episode.is_avoided for episode in run),
        sum(row.needless is True for row in rebalances),
        total([row.stopped_total_ms for row in rebalances]),
        longest([row.stopped_longest_ms for row in rebalances]) or 0,
        longest([row.unread_longest_ms for row in rebalances]) or 0,
        bool(rebalances) and max(rebalances).outcome == "empty",
        longest(away),
        len(late),
        longest([ms for ms, _ in late]),
        longest([went.cause.get("session_timeout_ms") for _, went in late]),
        sum(row.trigger_certainty == "likely" for row in rebalances),
        sum(row.trigger_certainty == "unclear" for row in rebalances),
    )
