"""The acts of simulated groups, compared with their plans."""

from collections import Counter
from collections.abc import Iterator

import pytest

from kohort.insight.advisor.setting import Setting
from kohort.insight.analysis.episodes import RETURN_MS
from kohort.insight.tables.findings import Act
from tests.simulation.what_if import Plan, Step, live, make_plan
from tests.simulation.what_if_consumers import live_as_consumers
from tests.unit.insight.test_acts import acts_of

SESSION_MS = 10_000
LIVES = 4
FIRST_MS = 60_000
"""Time at which all first members have joined."""
OF_GROUP = {"grow": "topic_change", "subscribe": "subscription_change"}
AGAIN = {"deploy": "restart", "slow_restart": "restart"}
"""Kinds that count as a deploy: restarts of several processes, even slow ones."""


def happened(plan: Plan, *, is_static: bool) -> Counter[tuple[str, str]]:
    """Return the planned acts of each process that a broker can see."""
    return Counter(_happened(plan, is_static=is_static))


def _happened(plan: Plan, *, is_static: bool) -> Iterator[tuple[str, str]]:
    seen: set[int] = set()
    for place, step in enumerate(plan.steps):
        name = f"billing-{step.slot}"
        if step.what == "start" and step.slot not in seen:
            seen.add(step.slot)
            yield ("start" if step.at_ms < FIRST_MS else "scale_out"), name
        elif step.what == "freeze":
            yield "pause", name
        elif step.what in {"leave", "crash"}:
            yield _end(step, plan.steps[place + 1 :], is_static=is_static), name


def _end(step: Step, later: list[Step], *, is_static: bool) -> str:
    back_ms = next(
        (other.at_ms for other in later if other.slot == step.slot and other.what == "start"), None
    )
    is_back = back_ms is not None and back_ms - step.at_ms <= RETURN_MS
    if not is_static:
        left = "restart" if is_back else "scale_in"
        return "crash" if step.what == "crash" else left
    # A static member does not say whether it stops or crashes.
    return "restart" if is_back else "static_gone"


def told(acts: list[Act]) -> Counter[tuple[str, str]]:
    counts: Counter[tuple[str, str]] = Counter()
    for act in acts:
        if act.kind in OF_GROUP.values():
            continue
        for name in act.processes:
            counts[AGAIN.get(act.kind, act.kind), name] += 1
    return counts


@pytest.mark.parametrize("number", range(LIVES))
@pytest.mark.parametrize("way", ["dynamic", "static", "cooperative", "consumer"])
def test_each_act_of_a_planned_life_is_named_as_it_was(way: str, number: int) -> None:
    is_static = way == "static"
    plan = make_plan(f"acts {number}", events=24)
    setting = Setting(
        static=is_static,
        session_timeout_ms=SESSION_MS,
        cooperative=way == "cooperative",
        consumer=way == "consumer",
    )
    lived = live_as_consumers if setting.consumer else live
    found = acts_of(lived(plan, setting, run="a"))
    assert told(found) == happened(plan, is_static=is_static)
    # Processes are away for 2.5 s, or for more than twice the session.
    assert any(act.late_count for act in found) == is_static
    for what, kind in OF_GROUP.items():
        assert any(act.kind == kind for act in found) == any(
            step.what == what for step in plan.steps
        )
