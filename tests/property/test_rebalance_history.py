"""The history under everything that groups are put through: nothing is missing, nothing twice."""

from typing import Any

from kohort.groups.events import (
    GroupRemoved,
    GroupRestored,
    JoinPhaseEnded,
    MemberReplaced,
    RebalanceAvoided,
    RebalanceEnd,
    RebalanceEnded,
    RebalanceStarted,
)
from kohort.groups.history.build import build_avoided, build_steps
from kohort.groups.history.evidence import evidence
from kohort.groups.history.facts import AvoidedFacts, RebalanceFacts
from kohort.groups.history.fold import GroupFold
from kohort.groups.history.json_form import parse_text, text_steps
from kohort.groups.history.model import (
    AvoidedRecord,
    HistoryRecord,
    MemberFate,
    RebalanceOutcome,
    RebalanceRecord,
)
from kohort.groups.history.sentence import PROBLEMS, sentence
from kohort.groups.steps import at_once
from tests.property.group_members import Witness
from tests.property.test_group import GroupMachine
from tests.support.groups.scenario import Scenario
from tests.support.walk import walk


class HistoryWitness(Witness):
    """Makes records of what it sees, and looks at each."""

    def follow(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.fold = GroupFold()
        self.records: list[HistoryRecord] = []
        self.generations: list[int] = []
        self.started_count = 0
        self.avoided_count = 0
        self.members: set[str] = set()
        """The members after the last record."""
        self.left: set[str] = set()
        """The members that left in its sync phase."""
        self.renamed: set[str] = set()
        """The old and new ids of static members that returned."""

    def watch(self, answer_or_event: Any) -> None:  # noqa: ANN401
        super().watch(answer_or_event)
        match answer_or_event:
            case RebalanceStarted():
                self.started_count += 1
            case RebalanceAvoided():
                self.avoided_count += 1
            case MemberReplaced(old, new):
                self.renamed |= {old, new.member_id}
            case JoinPhaseEnded():
                self.generations.append(answer_or_event.generation)
            case RebalanceEnded(RebalanceEnd.EMPTY, generation):
                self.generations.append(generation)
        self.fold.observe(answer_or_event, self.scenario.now)
        self.collect()
        if isinstance(answer_or_event, GroupRestored):
            self.members = set(answer_or_event.assignments)
            self.left = set()
        if isinstance(answer_or_event, GroupRemoved):
            # Its history stays, and goes on with the next group of this id.
            self.fold = GroupFold(self.fold.sequence)
            self.members, self.left = set(), set()

    def collect(self) -> None:
        closed, self.fold.closed = self.fold.closed, []
        for facts in closed:
            record: HistoryRecord
            if isinstance(facts, AvoidedFacts):
                record = build_avoided("g", facts)
            else:
                assert isinstance(facts, RebalanceFacts)
                record, _ = at_once(build_steps("g", facts, until_ms=self.scenario.ms))
                self.check(record)
                self.check_members(record)
            assert "\n" not in sentence(record)
            assert all("\n" not in line for line in evidence(record))
            assert parse_text(at_once(text_steps(record))) == record
            if self.records:
                assert record.sequence > self.records[-1].sequence
            self.records.append(record)

    def check(self, record: RebalanceRecord) -> None:
        finished_ms = record.timeline.finished_ms
        assert record.outcome is not RebalanceOutcome.RUNNING
        assert (finished_ms is None) == (record.outcome is RebalanceOutcome.UNFINISHED)
        ids = [member.member_id for member in record.members]
        assert len(ids) == len(set(ids))
        assert record.members_dropped == 0
        assert record.waited_for.ms >= 0
        for member in record.members:
            moments = [
                member.join_received_ms,
                member.join_answered_ms,
                member.sync_received_ms,
                member.sync_answered_ms,
            ]
            known = [moment for moment in moments if moment is not None]
            assert known == sorted(known)
            assert member.stopped_ms is None or member.stopped_ms >= 0
            assert (member.stopped_ms is None) == (member.join_received_ms is None)
        if record.outcome is RebalanceOutcome.STABLE:
            roles = [member.role for member in record.members]
            assert roles.count("leader") == 1
            assert record.members_after == len([role for role in roles if role])

    def check_members(self, record: RebalanceRecord) -> None:
        """They are those of the record before, and those that have come since; those that left in
        between are listed once.
        """
        listed = {member.member_id: member.fate for member in record.members}
        joined = {one.member_id for one in record.members if one.join_received_ms is not None}
        refused = {
            member_id
            for member_id, fate in listed.items()
            if fate in {MemberFate.FENCED, MemberFate.REFUSED}
        }
        known = self.members | self.left | self.renamed
        assert listed.keys() <= known | joined | refused
        assert self.members - self.renamed <= listed.keys()
        phase_end_ms = record.timeline.join_phase_ms
        self.members = {one.member_id for one in record.members if one.fate_ms is None}
        # A departure in the sync phase begins the next rebalance, which lists it too.
        self.left = {
            one.member_id
            for one in record.members
            if one.fate_ms is not None and phase_end_ms is not None and one.fate_ms >= phase_end_ms
        }

    def check_all(self) -> None:
        self.fold.stop()
        self.collect()
        rebalances = [one for one in self.records if isinstance(one, RebalanceRecord)]
        avoided = [one for one in self.records if isinstance(one, AvoidedRecord)]
        assert len(rebalances) == self.started_count
        told = [one for one in avoided if one.trigger.kind not in PROBLEMS]
        further = [cause.kind for one in rebalances for cause in one.further_causes]
        if len(told) < len(avoided) or PROBLEMS.intersection(further):
            # That two processes take an instance id from each other is recorded once.
            assert len(told) <= self.avoided_count
        else:
            assert len(told) == self.avoided_count
        assert [
            one.generation for one in rebalances if one.generation is not None
        ] == self.generations


class HistoryMachine(GroupMachine):
    """The same members and troubles, with a witness that keeps a history."""

    @property
    def witness(self) -> HistoryWitness:
        return self._witness

    @witness.setter
    def witness(self, _: Witness) -> None:
        self._witness = HistoryWitness()
        self._witness.follow(self.scenario)

    def teardown(self) -> None:
        super().teardown()
        self.witness.check_all()


def test_every_rebalance_has_one_record(long_form: bool) -> None:
    walk(HistoryMachine, "history", steps=20_000 if long_form else 3_000, steps_of_run=40)
