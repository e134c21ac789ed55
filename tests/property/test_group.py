"""One group under members that join, leave, die, return, dawdle and are told apart by nothing but
what they were told; under a log that is slow and fails; and under restarts of the broker.
"""

import time
from typing import Any

import pytest

from kohort.groups.config import GroupConfig
from kohort.groups.records import GroupTombstone, OffsetRecord
from kohort.groups.requests import LeaveEntry
from kohort.protocol.errors import ErrorCode
from tests.property.group_members import PARTITIONS, Member, Witness
from tests.support.groups.scenario import SECOND, Scenario, Ticket, subscription
from tests.support.walk import choice, flag, number, perhaps, row, several, step, walk

MEMBERS_MAX = 5
INSTANCES = ["a", "b", "c"]
RANGE = ("range", subscription("t"))
STICKY = ("sticky", subscription("t"))
OFFERS = [(RANGE,), (RANGE, STICKY), (STICKY, RANGE), (("range", subscription("t", "u")),)]
offers = choice(OFFERS)
reasons = number(0, 10)
weak_reasons = choice([0, 1, 7, 8])
whom = number(0, MEMBERS_MAX - 1)
STEPS_SHORT, STEPS_LONG = 20_000, 200_000
STEPS_OF_RUN = 100
FAILURES = [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.REQUEST_TIMED_OUT]


def is_free(machine: "GroupMachine") -> bool:
    return machine.is_free()


def is_writing(machine: "GroupMachine") -> bool:
    return not machine.is_free()


def has_room_and_is_free(machine: "GroupMachine") -> bool:
    return machine.is_free() and machine.has_room()


class GroupMachine:
    @step(
        is_first=True,
        delay_ms=choice([0, 3_000]),
        size_max=choice([3, 100]),
        pending_max=choice([2, 100]),
        first=several(perhaps(choice(INSTANCES)), 0, 3),
    )
    def begin(
        self, delay_ms: int, size_max: int, pending_max: int, first: list[str | None]
    ) -> None:
        self.scenario = Scenario(
            GroupConfig(
                initial_rebalance_delay_ms=delay_ms, max_size=size_max, pending_ids_max=pending_max
            )
        )
        self.witness = Witness()
        self.scenario.watch = self.witness.watch
        self.members: list[Member] = []
        self.commits: list[tuple[int, Ticket]] = []
        self.acknowledged: int | None = None
        """The last position of t-0 that somebody was told is stored."""
        for instance in first:
            self.add(instance=instance, protocols=OFFERS[1])
        self.the_world_is_quiet_for_a_while(10)

    # Who there is.

    def is_free(self) -> bool:
        """Nothing but heartbeats may happen while an append is under way."""
        return not self.scenario.group.outbox.in_flight

    def add(self, **traits: Any) -> Member:  # noqa: ANN401 - fields of Member.
        self.members.append(Member(self.scenario, self.witness, **traits))
        return self.members[-1]

    def pick(self, index: int) -> Member | None:
        alive = [member for member in self.members if member.is_alive]
        return alive[index % len(alive)] if alive else None

    def has_room(self) -> bool:
        return sum(member.is_alive for member in self.members) < MEMBERS_MAX

    # Members.

    @step(has_room_and_is_free, is_old=flag(), protocols=offers, reason=reasons)
    def a_dynamic_member_appears(
        self, is_old: bool, protocols: tuple[tuple[str, bytes], ...], reason: int
    ) -> None:
        self.add(is_old=is_old, protocols=protocols, reason=reason).act()

    @step(
        has_room_and_is_free,
        instance=choice(INSTANCES),
        is_old=flag(),
        protocols=offers,
        reason=reasons,
    )
    def a_static_member_appears_or_returns(
        self,
        instance: str,
        is_old: bool,
        protocols: tuple[tuple[str, bytes], ...],
        reason: int,
    ) -> None:
        """If a process with this instance id is alive, it will learn that it is fenced."""
        self.add(instance=instance, is_old=is_old, protocols=protocols, reason=reason).act()

    @step(is_free, index=whom)
    def a_member_goes_on(self, index: int) -> None:
        member = self.pick(index)
        if member is not None:
            member.act()

    @step(is_free)
    def everybody_goes_on(self) -> None:
        for member in self.members:
            member.act()
            if not self.is_free():
                break

    @step(is_free, seconds=number(1, 15))
    def the_world_is_quiet_for_a_while(self, seconds: int) -> None:
        """So that the next event finds a settled group, more often than not."""
        for _ in range(seconds):
            self.everybody_goes_on()
            if self.is_free():
                self.scenario.advance(SECOND)

    @step(
        is_free, events=several(row(whom, choice(["act", "act", "join", "leave", "return"])), 2, 6)
    )
    def several_requests_come_in_one_turn(self, events: list[tuple[int, str]]) -> None:
        with self.scenario.turn():
            for index, event in events:
                member = self.pick(index)
                if member is None:
                    continue
                if event == "leave":
                    member.leave()
                elif event == "join" and member.sync is None and member.partitions is not None:
                    member.send_join()
                elif event == "act" and member.partitions is None:
                    member.act()
                elif event == "return" and member.instance is not None:
                    self.a_process_returns_at_once(index, 0)

    @step(index=whom)
    def a_member_heartbeats(self, index: int) -> None:
        """Also while an append is under way."""
        member = self.pick(index)
        if member is not None and member.partitions is not None:
            member.look()
            if member.is_alive and member.partitions is not None:
                member.heartbeat()

    @step(is_free, index=whom, reason=reasons, protocols=perhaps(offers))
    def a_member_joins_again(
        self, index: int, reason: int, protocols: tuple[tuple[str, bytes], ...] | None
    ) -> None:
        member = self.pick(index)
        if member is not None and member.sync is None:
            member.look()
            member.reason = reason
            member.protocols = protocols or member.protocols
            if member.is_alive:
                member.send_join()

    @step(is_free, index=whom, reason=weak_reasons)
    def a_process_returns_at_once(self, index: int, reason: int) -> None:
        member = self.pick(index)
        if member is not None and (member.instance is not None or self.has_room()):
            member.is_alive = False
            self.members.append(member.next_process(reason))
            self.members[-1].act()

    @step(is_free, index=whom, how=choice(["leaves", "dies", "is removed"]), settles=flag())
    def a_member_goes(self, index: int, how: str, settles: bool) -> None:
        member = self.pick(index)
        if member is None:
            return
        if how == "leaves":
            member.leave()
        elif how == "dies":
            member.is_alive = False
        else:
            self.scenario.send_leave(LeaveEntry("", member.instance or "nobody's"))
        if settles:
            self.the_world_is_quiet_for_a_while(15)

    @step(is_free, index=whom)
    def a_member_commits(self, index: int) -> None:
        member = self.pick(index)
        if member is not None and member.generation >= 0:
            offset = len(self.commits) + 1
            self.commits.append((offset, member.commit(offset)))

    # The world.

    @step(is_free, duration_ms=choice([0, 1, 500, 3 * SECOND, 9 * SECOND, 61 * SECOND]))
    def time_passes(self, duration_ms: int) -> None:
        end_ms = self.scenario.ms + duration_ms
        while self.scenario.ms < end_ms and self.is_free():
            self.scenario.advance(min(SECOND, end_ms - self.scenario.ms))

    @step(count=number(1, 4))
    def topics_change(self, count: int) -> None:
        self.scenario.partition_counts["t"] = count

    @step(is_free, failure=perhaps(choice(FAILURES)))
    def appends_become_slow_or_fail(self, failure: ErrorCode | None) -> None:
        self.scenario.hold_appends = failure is None
        self.scenario.fail_appends = failure

    @step(failure=perhaps(choice(FAILURES)))
    def the_append_ends(self, failure: ErrorCode | None) -> None:
        self.scenario.hold_appends = False
        if not self.is_free():
            self.scenario.fail_appends = failure
            self.scenario.finish_append()
        self.scenario.fail_appends = None
        self.revive()

    @step(is_writing)
    def the_append_takes_too_long_for_clients(self) -> None:
        self.scenario.step(self.scenario.group.on_append_late)

    @step(reached_the_disk=flag(), settles=flag())
    def the_broker_restarts(self, reached_the_disk: bool, settles: bool) -> None:
        """What was on its way to the log is there, or not, all of it."""
        s = self.scenario
        if s.group.outbox.in_flight and reached_the_disk:
            s.log.extend(s.appends[-1])
        s.hold_appends, s.fail_appends = False, None
        for member in self.members:
            member.lose_connection()
        self.note_commits()
        self.commits = [(offset, ticket) for offset, ticket in self.commits if not ticket.is_parked]
        self.forget_removed_group()
        s.restart()
        self.witness.saw_restart()
        if settles:
            self.the_world_is_quiet_for_a_while(15)

    @step(is_free, deletes=flag())
    def the_sweep_comes_round_or_somebody_deletes_the_group(self, deletes: bool) -> None:
        """Either takes an empty group only."""
        ticket = self.scenario.ticket()
        if deletes:
            self.scenario.step(lambda: self.scenario.group.delete(ticket))
        else:
            self.scenario.sweep()
            self.scenario.tickets.remove(ticket)
        self.revive()

    def revive(self) -> None:
        """A group that is gone is made again by whichever client comes next."""
        if self.scenario.state == "Dead":
            assert self.forget_removed_group()
            self.scenario.timers.clear()
            self.scenario.group = self.scenario.make_group()

    def forget_removed_group(self) -> bool:
        """The records of a group that is gone say nothing about the next one of its name."""
        log = self.scenario.log
        if not (log and isinstance(log[-1], GroupTombstone)):
            return False
        log.clear()
        for member in self.members:
            member.look()  # What was answered belongs to the life that ends.
        self.witness.saw_removal()
        self.acknowledged = None
        self.commits.clear()
        return True

    # What must hold.

    def note_commits(self) -> None:
        for offset, ticket in self.commits:
            if not ticket.is_parked and ticket.answer.errors == (ErrorCode.NONE,):
                self.acknowledged = max(self.acknowledged or 0, offset)

    def committed_positions_are_those_in_the_log(self) -> None:
        stored = [record for record in self.scenario.log if isinstance(record, OffsetRecord)]
        expected = stored[-1].committed.offset if stored else None
        assert self.scenario.offset() == expected
        self.note_commits()
        if self.acknowledged is not None:
            assert expected is not None
            assert expected >= self.acknowledged

    def a_restart_would_bring_back_what_members_were_told(self) -> None:
        s = self.scenario
        if s.state != "Stable" or not self.is_free():
            return
        stored = s.last_group_record()
        assert stored.generation == s.classic.data.generation
        assert stored.leader_id == s.classic.roster.leader_id
        assert {(m.member_id, m.instance_id): m.assignment for m in stored.members} == {
            (m.member_id, m.instance_id): m.assignment for m in s.classic.roster
        }

    def no_request_waits_without_a_deadline(self) -> None:
        """And no ticket was answered twice, which the scenario looks at in every step."""
        self.scenario.check()

    def check_all(self) -> None:
        self.committed_positions_are_those_in_the_log()
        self.a_restart_would_bring_back_what_members_were_told()
        self.no_request_waits_without_a_deadline()

    def teardown(self) -> None:
        self.the_append_ends(None)
        s = self.scenario
        for _ in range(600):
            for member in self.members:
                member.act()
            s.advance(SECOND)
            if self.has_converged():
                break
        else:
            raise AssertionError(f"no convergence: {s.state}, {s.classic.waiting_for()}")
        assert not [ticket for ticket in s.tickets if ticket.is_parked]

    def has_converged(self) -> bool:
        """All alive share all partitions, in one generation, and no other member is there."""
        alive = [member for member in self.members if member.is_alive]
        group = self.scenario.classic
        if {member.member_id for member in group.roster} != {member.member_id for member in alive}:
            return False
        if not alive:
            return self.scenario.state == "Empty" and not self.scenario.timers
        if self.scenario.state != "Stable" or any(m.partitions is None for m in alive):
            return False
        shared = sorted(partition for member in alive for partition in member.partitions or ())
        generations = {member.generation for member in alive}
        return shared == list(range(PARTITIONS)) and generations == {group.data.generation}


@pytest.mark.timeout(900)
def test_a_group_keeps_its_promises(capsys: pytest.CaptureFixture[str], long_form: bool) -> None:
    """`make simulate` goes on."""
    begun_s = time.monotonic()
    wanted = STEPS_LONG if long_form else STEPS_SHORT
    steps = walk(GroupMachine, "group", steps=wanted, steps_of_run=STEPS_OF_RUN)
    with capsys.disabled():
        print(f"\nstate machine: {steps:,} steps in {time.monotonic() - begun_s:.0f} s")
    assert steps >= wanted
