"""Members as well-behaved clients play them, one request at a time, and what they may observe.

This is the model that the group is held against. It knows nothing of states and timers: only who
was told what, and that no partition may have two owners in one generation.
"""

import json
from dataclasses import dataclass, field

from kohort.groups.events import RebalanceEnd, RebalanceEnded
from kohort.groups.requests import JoinResult, LeaveEntry, OffsetToCommit, SyncResult
from kohort.protocol.errors import ErrorCode
from tests.support.groups.scenario import Scenario, Ticket

PARTITIONS = 6
RETRIABLE = {
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_SERVER_ERROR,
}


@dataclass
class Witness:
    """Everything that members were told, and what must hold for it."""

    owners: dict[tuple[int, int], dict[int, str]] = field(default_factory=dict)
    """(life of the group, generation) -> partition -> slot that owns it."""
    life: int = 0
    """Counts up when the group is removed; generations begin again then."""
    joined_generation: int = 0
    """The highest that a join was answered with since the broker started."""
    stable_generation: int = 0
    """The highest that became stable, restarts or not."""
    assignments_made: int = 0

    def watch(self, answer_or_event: object) -> None:
        """Generations only grow; one that never became stable may come again after a restart."""
        match answer_or_event:
            case JoinResult(ErrorCode.NONE, _, generation):
                assert generation >= self.joined_generation, "a generation went back"
                self.joined_generation = generation
            case RebalanceEnded(RebalanceEnd.STABLE, generation):
                assert generation > self.stable_generation, "a generation came again"
                self.stable_generation = generation

    def saw_assignment(self, slot: str, generation: int, partitions: list[int]) -> None:
        owners = self.owners.setdefault((self.life, generation), {})
        for partition in partitions:
            owner = owners.setdefault(partition, slot)
            assert owner == slot, f"{partition} has two owners in generation {generation}"

    def saw_restart(self) -> None:
        self.joined_generation = self.stable_generation

    def saw_removal(self) -> None:
        self.life += 1
        self.joined_generation = self.stable_generation = 0


@dataclass(eq=False)
class Member:
    """One process. `act` does what its client would do next."""

    scenario: Scenario
    witness: Witness
    instance: str | None = None
    is_old: bool = False
    """Joins without being told an id first (v0-3), and cannot skip an assignment."""
    protocols: tuple[tuple[str, bytes], ...] = ()
    reason: int = 0
    member_id: str = ""
    generation: int = -1
    partitions: list[int] | None = None
    """What it owns; None while it takes part in a rebalance."""
    is_alive: bool = True
    join: Ticket | None = None
    sync: Ticket | None = None
    joined: JoinResult | None = None
    """Its join was answered, its sync is not sent yet."""

    @property
    def slot(self) -> str:
        """Identity of the member across restarts."""
        return self.member_id if self.instance is None else f"static {self.instance}"

    def next_process(self, reason: int) -> "Member":
        """What starts in its place after it died."""
        return Member(
            self.scenario,
            self.witness,
            instance=self.instance,
            is_old=self.is_old,
            protocols=self.protocols,
            reason=reason,
        )

    def look(self) -> None:
        """Take the answers that have come."""
        if self.join is not None and not self.join.is_parked:
            ticket, self.join = self.join, None
            self._take_join(ticket.answer)
        if self.sync is not None and not self.sync.is_parked:
            ticket, self.sync = self.sync, None
            self._take_sync(ticket.answer)

    def act(self) -> None:
        """Send the next request, unless one is under way."""
        self.look()
        if not self.is_alive or self.join is not None or self.sync is not None:
            return
        if self.joined is not None:
            self._send_sync()
        elif self.partitions is None:
            self.send_join()
        else:
            self.heartbeat()

    def send_join(self) -> None:
        self.joined = None
        self.partitions = None
        self.join = self.scenario.join(
            self.member_id,
            instance=self.instance,
            protocols=self.protocols,
            requires_known_id=not self.is_old,
            can_skip_assignment=not self.is_old,
            reason=self.reason,
        )
        self.reason = 0

    def heartbeat(self) -> None:
        error = self.scenario.heartbeat(self.member_id, self.generation, instance=self.instance)
        self._take_error(error)

    def commit(self, offset: int) -> Ticket:
        return self.scenario.commit(
            OffsetToCommit("t", 0, offset),
            member_id=self.member_id,
            generation=self.generation,
            instance=self.instance,
        )

    def leave(self) -> None:
        self.is_alive = False
        self.scenario.send_leave(LeaveEntry(self.member_id, self.instance))

    def lose_connection(self) -> None:
        """The broker restarts: what was asked is asked again."""
        self.look()
        if self.join is not None:
            self.join = None
        if self.sync is not None:
            # Its generation may be gone; joining again is always right.
            self.sync = None
            self.partitions = None
        self.joined = None

    def _send_sync(self) -> None:
        joined, self.joined = self.joined, None
        assert joined is not None
        leads = joined.leader == self.member_id and not joined.skip_assignment
        self.sync = self.scenario.sync(
            self.member_id,
            self.generation,
            instance=self.instance,
            assignments=self._assign(joined) if leads else {},
        )

    def _assign(self, joined: JoinResult) -> dict[str, bytes]:
        """Every call assigns differently, so that two of one generation would be noticed."""
        assert joined.members
        self.witness.assignments_made += 1
        shift = self.witness.assignments_made
        shares: dict[str, list[int]] = {member.member_id: [] for member in joined.members}
        ids = sorted(shares)
        for partition in range(PARTITIONS):
            shares[ids[(partition + shift) % len(ids)]].append(partition)
        return {member_id: json.dumps(share).encode() for member_id, share in shares.items()}

    def _take_join(self, result: JoinResult) -> None:
        if result.error is ErrorCode.MEMBER_ID_REQUIRED:
            assert self.instance is None
            assert not self.is_old
            self.member_id = result.member_id
        elif result.error is ErrorCode.NONE:
            self.member_id, self.generation = result.member_id, result.generation
            self.joined = result
        elif result.error in {
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            ErrorCode.GROUP_MAX_SIZE_REACHED,
        }:
            self.is_alive = False
        else:
            self._take_error(result.error)

    def _take_sync(self, result: SyncResult) -> None:
        if result.error is ErrorCode.NONE:
            self.partitions = json.loads(result.assignment) if result.assignment else []
            self.witness.saw_assignment(self.slot, self.generation, self.partitions)
        else:
            self._take_error(result.error)

    def _take_error(self, error: ErrorCode) -> None:
        if error is ErrorCode.NONE:
            return
        if error is ErrorCode.FENCED_INSTANCE_ID:
            assert self.instance is not None
            self.is_alive = False
        elif error in {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION}:
            self.member_id, self.generation, self.partitions = "", -1, None
        else:
            assert error is ErrorCode.REBALANCE_IN_PROGRESS or error in RETRIABLE
            self.partitions = None
