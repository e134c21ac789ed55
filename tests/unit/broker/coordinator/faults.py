"""Faults of a group's actor, as tests cause them."""

from kohort.broker.coordinator.command import Command
from kohort.broker.runtime.deferred import Deferred
from kohort.groups.group import Group
from kohort.groups.requests import Now
from tests.unit.broker.coordinator.harness import Harness


def raising(group: Group, now: Now) -> None:
    raise RuntimeError("a mistake of ours")


def submit_fault(h: Harness) -> Deferred[object]:
    ticket: Deferred[object] = Deferred()
    h.groups.host.submit("g", Command(raising, ticket))
    return ticket
