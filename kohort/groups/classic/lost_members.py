"""Remembers members that were removed because they were silent, to tell whether a member that joins
soon afterwards is the same process.

A process that was paused sends a request with its former member id, or joins on the connection of
that member. A process that was started after a crash does neither.
"""

from dataclasses import dataclass
from typing import Final

from kohort.groups.classic.member import Member
from kohort.groups.requests import JoinRequest

LOST_MAX: Final = 100
"""Maximum number of lost members of a group; the oldest ones are forgotten first."""
CHARS_MAX: Final = 1_000
"""Members whose ids and host have more characters than this are not remembered."""


@dataclass(slots=True, eq=False)
class _Lost:
    process: tuple[str, ...]
    heard_ms: int
    """When the member sent its last heartbeat (monotonic)."""
    is_heard: bool = False
    """Whether a request with the member's id came after its removal."""


class LostMembers:
    __slots__ = ("_by_id",)

    def __init__(self) -> None:
        self._by_id: dict[str, _Lost] = {}

    def add(self, member: Member) -> None:
        process = _process(member.instance_id, member.client_id, member.client_host)
        if sum(map(len, (member.member_id, *process))) > CHARS_MAX:
            return
        self._by_id[member.member_id] = _Lost(
            process, member.session_deadline_ms - member.session_timeout_ms
        )
        if len(self._by_id) > LOST_MAX:
            del self._by_id[next(iter(self._by_id))]

    def hear(self, member_id: str) -> None:
        """Record a request with the id of a removed member: the member's process is alive."""
        lost = self._by_id.get(member_id)
        if lost is not None:
            lost.is_heard = True

    def take(self, request: JoinRequest, now_ms: int) -> tuple[bool | None, int | None]:
        """Forget the lost member that matches a join by instance id, or else client id and host.
        Return whether the join comes from that member's process, or None if no member matches. If
        it does, also return the ms since the member's last heartbeat.
        """
        same = self._by_id.get(request.former_member_id)
        if same is not None:
            same.is_heard = True
        process = _process(request.instance_id, request.client_id, request.client_host)
        lost = {key: one for key, one in self._by_id.items() if one.process == process}
        if not lost:
            return None, None
        heard = [key for key, one in lost.items() if one.is_heard]
        taken = self._by_id.pop(heard[0] if heard else next(iter(lost)))
        return bool(heard), now_ms - taken.heard_ms if heard else None


def _process(instance_id: str | None, client_id: str, host: str) -> tuple[str, ...]:
    return (client_id, host) if instance_id is None else (instance_id,)
