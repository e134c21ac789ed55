"""Deploys are found by what rebalances exchange, not by how many there are."""

from itertools import count, pairwise

from kohort.groups.events import TriggerKind
from kohort.groups.history.deploys import QUIET_MS, Deploy, deploy_steps
from kohort.groups.history.model import (
    AvoidedRecord,
    HistoryRecord,
    RebalanceOutcome,
    RebalanceRecord,
    Timeline,
    TriggerRecord,
)
from kohort.groups.steps import at_once

LEFT = TriggerKind.MEMBER_LEFT
CAME = TriggerKind.MEMBER_ADDED
TOOK_MS = 300


class History:
    """A group's records, each so long after the one before has begun."""

    def __init__(self) -> None:
        self.records: list[HistoryRecord] = []
        self.now_ms = 1_000
        self._numbers = count(1)

    def rebalance(
        self, *causes: tuple[TriggerKind, str], after_ms: int = 5_000, removed: int = 0
    ) -> None:
        self.now_ms += after_ms
        trigger, *further = [
            TriggerRecord(
                kind=kind,
                at_ms=self.now_ms,
                client_id=client,
                host="h",
                removed=tuple(f"{client}-{number}" for number in range(removed)),
            )
            for kind, client in causes
        ]
        self.records.append(
            RebalanceRecord(
                group="g",
                sequence=next(self._numbers),
                previous_generation=1,
                previous_state="Stable",
                started_at_ms=self.now_ms,
                trigger=trigger,
                further_causes=tuple(further),
                timeline=Timeline(finished_ms=TOOK_MS),
                outcome=RebalanceOutcome.STABLE,
            )
        )

    def avoided(self, instance_id: str, reason: str | None = None) -> None:
        self.now_ms += 5_000
        trigger = TriggerRecord(
            kind=TriggerKind.LEADER_REJOINED if reason else TriggerKind.STATIC_REPLACED,
            at_ms=self.now_ms,
            instance_id=instance_id,
            reason=reason,
            reason_source="tag" if reason else None,
        )
        self.records.append(
            AvoidedRecord(
                group="g",
                sequence=next(self._numbers),
                generation=1,
                at_ms=self.now_ms,
                trigger=trigger,
            )
        )

    @property
    def deploys(self) -> list[Deploy]:
        return at_once(deploy_steps(self.records))


def test_processes_that_are_restarted_one_by_one_are_a_deploy() -> None:
    history = History()
    for client in ("a", "b", "c"):
        history.rebalance((LEFT, client), after_ms=30_000)
        history.rebalance((CAME, client))
    began_ms = 1_000 + 30_000
    assert history.deploys == [Deploy(1, 6, began_ms, history.now_ms + TOOK_MS, 3)]


def test_the_exchange_may_be_in_further_causes() -> None:
    history = History()
    history.rebalance((LEFT, "a"), (LEFT, "b"), (CAME, "c"), (CAME, "d"))
    assert [one.processes for one in history.deploys] == [2]


def test_one_process_that_comes_and_goes_is_none() -> None:
    history = History()
    for _ in range(5):
        history.rebalance((LEFT, "a"))
        history.rebalance((CAME, "a"))
    assert not history.deploys


def test_members_that_only_come_or_only_go_are_none() -> None:
    history = History()
    for client in ("a", "b", "c"):
        history.rebalance((CAME, client))
    history.now_ms += QUIET_MS + TOOK_MS
    for client in ("a", "b", "c"):
        history.rebalance((LEFT, client))
    assert not history.deploys


def test_crashes_and_scaling_at_the_same_time_are_none() -> None:
    history = History()
    history.rebalance((TriggerKind.SESSION_EXPIRED, "a"))
    history.rebalance((CAME, "a"))
    for kind in (CAME, LEFT):
        for client in ("b", "c"):
            history.rebalance((kind, client))
    assert not history.deploys


def test_a_deploy_ends_when_nothing_happens_for_long() -> None:
    history = History()
    for pause_ms in (5_000, TOOK_MS + QUIET_MS + 1, TOOK_MS + QUIET_MS):
        history.rebalance((LEFT, "a"), (CAME, "a"), after_ms=pause_ms)
        history.rebalance((LEFT, "b"), (CAME, "b"))
    first, second = history.deploys
    assert (first.first_sequence, first.last_sequence) == (1, 2)
    assert (second.first_sequence, second.last_sequence) == (3, 6)
    assert all(one.ended_ms < other.began_ms for one, other in pairwise(history.deploys))


def test_several_members_that_one_record_removes_count_each() -> None:
    history = History()
    history.rebalance((LEFT, "a"), removed=2)
    history.rebalance((CAME, "c"))
    history.rebalance((CAME, "d"))
    assert [one.processes for one in history.deploys] == [2]


def test_static_members_that_come_back_are_a_deploy_though_nothing_rebalanced() -> None:
    history = History()
    history.avoided("a")
    assert not history.deploys
    history.avoided("b")
    assert [one.processes for one in history.deploys] == [2]


def test_leaders_that_say_they_were_restarted_are_believed() -> None:
    history = History()
    for instance_id in ("a", "b"):
        history.avoided(instance_id, reason="RESTART")
    assert [one.processes for one in history.deploys] == [2]
