"""A member of a classic group, and an id that may become one."""

from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from kohort.groups.effects import TimerKey
from kohort.groups.events import MemberRef
from kohort.groups.reasons import NO_REASON, StatedReason
from kohort.groups.requests import Connection, Ticket

SESSION: Final = "session"
"""Kind of the timer that removes a silent member."""

PENDING: Final = "pending"
"""Kind of the timer that forgets a generated member id that no client has joined with."""

JOIN_TIMER: Final = TimerKey("join")
SYNC_TIMER: Final = TimerKey("sync")


Protocols: TypeAlias = tuple[tuple[str, bytes], ...]
"""(name, metadata), in order of preference."""


@dataclass(slots=True, eq=False)
class Member:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    is_restored: bool = False
    """Whether `protocols` is from the log, which contains only the chosen protocol."""
    is_new: bool = False
    """Whether the member never completed a join; if so, its session expires even if `is_parked`."""
    join_ticket: Ticket | None = None
    sync_ticket: Ticket | None = None
    session_deadline_ms: int = 0
    """When the session expires. A heartbeat changes only this number."""
    session_timer_ms: int | None = None
    """When the timer will check the session: at or before its end; None while no timer runs."""
    rejoin_requested: bool = False
    """Whether the member got a REBALANCE_IN_PROGRESS since the rebalance began."""
    reason: StatedReason = field(default=NO_REASON)
    """The reason that the member stated in its last JoinGroup."""
    client_software: str = ""
    """See `MemberRef.client_software`; changed only by `set_software`."""
    connection: Connection | None = None
    """The connection of the member's last heartbeat."""
    _ref: MemberRef | None = None
    _session_key: TimerKey | None = None

    @property
    def is_static(self) -> bool:
        """Whether the member has an instance id, which stays the same across restarts (KIP-345)."""
        return self.instance_id is not None

    @property
    def is_parked(self) -> bool:
        """Whether the member waits for a response, and so need not send heartbeats."""
        return self.join_ticket is not None or self.sync_ticket is not None

    @property
    def metadata_bytes(self) -> int:
        return size_of(self.protocols) + size_of_ids(self.client_id, self.instance_id)

    @property
    def protocol_names(self) -> tuple[str, ...]:
        """Protocol names in order of preference."""
        return tuple([name for name, _ in self.protocols])

    def compare_names(self, protocols: Protocols) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the names of the member's protocols, and those in `protocols`, for the history.
        Both are empty if the member was restored and its only known protocol is in `protocols`: its
        other protocols, and so the difference, are unknown.
        """
        now = tuple([name for name, _ in protocols])
        if self.is_restored and self.protocols[0][0] in now:
            return (), ()
        return self.protocol_names, now

    def metadata(self, protocol_name: str | None) -> bytes:
        """Return the metadata for the assignor `protocol_name`; empty if the member does not offer
        it.
        """
        return metadata_for(protocol_name, self.protocols)

    @property
    def ref(self) -> MemberRef:
        """The member's identity, for the history; cached, because each rebalance lists it twice."""
        ref = self._ref
        if ref is None:
            ref = self._ref = MemberRef(
                self.member_id,
                self.instance_id,
                self.client_id,
                self.client_host,
                self.client_software,
            )
        return ref

    def set_software(self, software: str) -> None:
        if software != self.client_software:
            self.client_software = software
            self._ref = None

    @property
    def session_key(self) -> TimerKey:
        """Key of the member's session timer; cached: thousands of sessions restart together."""
        key = self._session_key
        if key is None:
            key = self._session_key = TimerKey(SESSION, self.member_id)
        return key


PROTOCOLS_USUAL: Final = 5
"""Number of protocols whose overhead is counted as part of the member; no client offers more."""
PROTOCOL_BYTES: Final = 200
"""Overhead in bytes of each protocol after the first `PROTOCOLS_USUAL`; 214 were measured."""
_WIDE: Final = 4
"""Maximum bytes per character that Python uses for a text that is not ASCII."""


def size_of(protocols: Protocols) -> int:
    """Return the memory that protocols take, names included."""
    size = PROTOCOL_BYTES * max(len(protocols) - PROTOCOLS_USUAL, 0)
    for name, data in protocols:
        size += _size_of_text(name) + len(data)
    return size


def size_of_ids(client_id: str, instance_id: str | None) -> int:
    """Return the memory of a member's ids, which may be a hundred times as long as usual."""
    return _size_of_text(client_id) + (0 if instance_id is None else _size_of_text(instance_id))


def _size_of_text(text: str) -> int:
    return len(text) if text.isascii() else _WIDE * len(text)


def cut_text(text: str, bytes_max: int) -> str:
    """Return the longest prefix of `text` that takes at most `bytes_max` bytes in UTF-8."""
    if len(text) * 4 <= bytes_max:
        return text
    return text.encode()[:bytes_max].decode(errors="ignore")


def metadata_for(name: str | None, protocols: Protocols) -> bytes:
    """Return the metadata of the protocol `name`; empty if `protocols` does not contain it."""
    for offered, data in protocols:
        if offered == name:
            return data
    return b""


class PendingMember(NamedTuple):
    """An id that was handed out with MEMBER_ID_REQUIRED and not used yet."""

    member_id: str
    reason: StatedReason
    """The reason of the first join: in the second, clients often state only that they got an id."""
    deadline_ms: int
