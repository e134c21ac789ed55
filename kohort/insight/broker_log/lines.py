"""What the lines of Kafka's group coordinator say, of all versions that had the classic protocol.

Group ids and reasons are texts of users', with whatever is in them, so each pattern leans on the
words around them. Lines of other parts of the broker, and of groups with the consumer protocol of
KIP-848, are not for us and give nothing.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, tzinfo
from typing import Final, NamedTuple, TypeAlias


@dataclass(frozen=True, slots=True)
class Member:
    """What a line tells of a member; None for what it does not."""

    member_id: str
    instance_id: str | None = None
    client_id: str | None = None
    host: str | None = None
    session_timeout_ms: int | None = None
    rebalance_timeout_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Preparing:
    """A rebalance begins."""

    group: str
    generation: int
    """The one that ends."""
    reason: str | None


@dataclass(frozen=True, slots=True)
class Stabilized:
    """All have joined, or their time is up."""

    group: str
    generation: int
    members: int | None


@dataclass(frozen=True, slots=True)
class Assigned:
    """The leader's assignment is there."""

    group: str
    generation: int
    leader: str | None


@dataclass(frozen=True, slots=True)
class Emptied:
    """The last member is gone."""

    group: str
    generation: int


@dataclass(frozen=True, slots=True)
class Joined:
    """A new member."""

    group: str
    member: Member


@dataclass(frozen=True, slots=True)
class Left:
    """A member left, or was removed by an administrator."""

    group: str
    member: Member
    text: str | None


@dataclass(frozen=True, slots=True)
class Failed:
    """A member's session ended."""

    group: str
    member: Member


@dataclass(frozen=True, slots=True)
class NotJoined:
    """Members were dropped that had not joined in time."""

    group: str
    member_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Replaced:
    """A static member's process came back; its new id is not in the line."""

    group: str
    member: Member
    """The member under its old id."""


Fact: TypeAlias = (
    Preparing | Stabilized | Assigned | Emptied | Joined | Left | Failed | NotJoined | Replaced
)


class Line(NamedTuple):
    """A line that is for us."""

    at_ms: int
    """Wall time."""
    fact: Fact


def read(line: str, zone: tzinfo) -> Line | None:
    """What a line of a log says, None if it says nothing of a group.

    `zone` is the one of the broker, for times without one, which is how Kafka writes them.
    """
    # Most lines are of others, and this is quicker than any pattern.
    if "roup" not in line:
        return None
    text = message(line)
    stamp = _STAMP.search(text)
    # In a JSON layout the time is a field of its own.
    fact = _fact(_LOGGER.sub("", text if stamp is None else text[stamp.end() :]))
    stamp = stamp or _STAMP.search(line)
    if fact is None or stamp is None:
        return None
    try:
        return Line(_millis(stamp, zone), fact)
    except ValueError:
        return None


def begins_rebalance(line: str) -> bool:
    """Whether a line in any layout logs the start of a rebalance."""
    return "Preparing to rebalance" in line


def message(line: str) -> str:
    """Return the message in a line that is or ends with a JSON object; the line itself if it does
    not.

    Docker's json-file driver and JSON layouts write such lines; one may contain the other.
    """
    for _ in range(_JSON_LEVELS):
        begin = line.find("{")
        if begin < 0 or not line.rstrip().endswith("}"):
            break
        try:
            fields = json.loads(line[begin:])
        except (ValueError, RecursionError):
            break
        inner = next((fields[name] for name in MESSAGE_FIELDS if name in fields), None)
        if not isinstance(inner, str):
            break
        line = inner
    return line


def ids_in(text: str) -> tuple[str, ...]:
    """The members of a list as Java or Scala print it, ``[a, b]``, ``Set(a, b)``."""
    inner = re.fullmatch(r"(?:\w*\(|\[)(.*)[\])]", text.strip())
    return tuple(part for part in (inner[1] if inner else text).split(", ") if part)


def optional(text: str | None) -> str | None:
    """An optional value as Java or Scala print it: None, null, Some(x), Optional[x], x."""
    if text in {None, "None", "null", "Optional.empty", ""}:
        return None
    assert text is not None
    found = re.fullmatch(r"Some\((.*)\)|Optional\[(.*)\]", text)
    return (found[1] or found[2]) if found else text


def reason_text(text: str | None) -> str | None:
    """KIP-800's text as it is printed."""
    return None if text in {None, "", "not provided"} else text


_STAMP: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[ T](\d\d):(\d\d):(\d\d)(?:[.,](\d{3})\d*)?(Z|[+-]\d\d:?\d\d)?"
)


MESSAGE_FIELDS: Final = ("log", "message", "msg")
"""Names of the field with the message in lines of JSON."""

_JSON_LEVELS: Final = 2

_LOGGER: Final = re.compile(
    r"\s*(?:\((?:\w+\.)+[\w$]+(?::\d+)?\)(?: \[[^][]*\])?|\| (?:\w+\.)+[\w$]+ \([^()]*\))?\s*$"
)
"""What log layouts append to the message: " (kafka.coordinator.group.GroupCoordinator)", perhaps
with a line number, or with the thread in Strimzi's layout: " [executor-Heartbeat]"."""


def _millis(stamp: re.Match[str], zone: tzinfo) -> int:
    *numbers, fraction, offset = stamp.groups()
    year, month, day, hour, minute, second = map(int, numbers)
    if offset:
        zone = datetime.strptime(offset, "%z").tzinfo or zone
    moment = datetime(year, month, day, hour, minute, second, tzinfo=zone)
    return int(moment.timestamp()) * 1000 + int(fraction or 0)


def _fact(text: str) -> Fact | None:
    for pattern, made in _PATTERNS:
        found = pattern.search(text)
        if found is not None:
            return made(found)
    return None


_TOPIC: Final = r"(?: \(__consumer_offsets-\d+\))?"
_END: Final = r"\.?$"
_METADATA: Final = (
    r"MemberMetadata\(memberId=(?P<id>.*?), groupInstanceId=(?P<instance>.*?), "
    r"clientId=(?P<client>.*?), clientHost=(?P<host>.*?), sessionTimeoutMs=(?P<session>\d+), "
    r"rebalanceTimeoutMs=(?P<rebalance>\d+), supportedProtocols=.*?\)"
)


def _member(found: re.Match[str]) -> Member:
    parts = found.groupdict()
    session, rebalance = parts.get("session"), parts.get("rebalance")
    return Member(
        member_id=parts["id"],
        instance_id=optional(parts.get("instance")),
        client_id=parts.get("client"),
        host=parts.get("host"),
        session_timeout_ms=int(session) if session else None,
        rebalance_timeout_ms=int(rebalance) if rebalance else None,
    )


def _left(found: re.Match[str]) -> Left:
    return Left(found["group"], _member(found), reason_text(found.groupdict().get("text")))


def _stabilized(found: re.Match[str]) -> Stabilized:
    members = found["members"]
    return Stabilized(found["group"], int(found["generation"]), int(members) if members else None)


_PATTERNS: Final[tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], Fact]], ...]] = (
    (
        # "restabilize" until 0.10; without state and reason until 2.0.
        re.compile(
            r"Preparing to (?:rebalance|restabilize) group (?P<group>.+?)"
            r"(?: in state \w+)? with old generation (?P<generation>\d+)"
            rf"{_TOPIC}(?: \(reason: (?P<reason>.*)\))?{_END}"
        ),
        lambda found: Preparing(found["group"], int(found["generation"]), found["reason"]),
    ),
    (
        re.compile(
            r"Stabilized group (?P<group>.+) generation (?P<generation>\d+)"
            rf"{_TOPIC}(?: with (?P<members>\d+) members)?{_END}"
        ),
        _stabilized,
    ),
    (
        # Without the leader until 2.7.
        re.compile(
            r"Assignment received from leader (?:(?P<leader>.+?) )?for group (?P<group>.+) "
            r"for generation (?P<generation>\d+)"
        ),
        lambda found: Assigned(found["group"], int(found["generation"]), found["leader"]),
    ),
    (
        re.compile(
            rf"Group (?P<group>.+) with generation (?P<generation>\d+) is now empty{_TOPIC}"
        ),
        lambda found: Emptied(found["group"], int(found["generation"])),
    ),
    (
        # 4.x: all members; before, a line for debugging.
        re.compile(
            r"Pending dynamic member with id (?P<id>.+) joins group (?P<group>.+) in \w+ state\. "
            r"Adding to the group now"
        ),
        lambda found: Joined(found["group"], _member(found)),
    ),
    (
        # Dynamic ones have to ask again first, but for JoinGroup up to version 3.
        re.compile(
            r"(?:Static [Mm]ember with groupInstanceId=(?P<instance>.+) and|Dynamic [Mm]ember with)"
            r" unknown member id joins group (?P<group>.+) in (?:state )?\w+(?: state)?\. "
            r"Created a new member id (?P<id>.+?) (?:for this member )?and add(?:ed)? "
            r"(?:the member )?to the group"
        ),
        lambda found: Joined(found["group"], _member(found)),
    ),
    (
        re.compile(
            r"Static member with groupInstanceId=(?P<instance>.+) and unknown member id joins "
            r"group (?P<group>.+) in \w+ state\. "
            r"Replacing previously mapped member (?P<id>.+) with this"
        ),
        lambda found: Replaced(found["group"], _member(found)),
    ),
    (
        # 3.x, with a reason since 3.2.
        re.compile(
            rf"Member {_METADATA} has left group (?P<group>.+) through explicit `LeaveGroup`"
            rf"(?:; client reason: (?P<text>.*?))?{_END}"
        ),
        _left,
    ),
    (
        # 4.x. Those whose id was handed out and never used are no members.
        re.compile(
            r"\[Group (?P<group>.+)\] (?:Static )?Member (?P<id>.+?)"
            r"(?: with instance id (?P<instance>.+?))? has left group through explicit "
            rf"`LeaveGroup` request; client reason: (?P<text>.*?){_END}"
        ),
        _left,
    ),
    (
        # 2.4 to 2.8.
        re.compile(
            r"Member\[group\.instance\.id (?P<instance>.+), member\.id (?P<id>.+)\] "
            r"in group (?P<group>.+) has left, removing it from the group"
        ),
        _left,
    ),
    (
        re.compile(
            r"Member (?P<id>.+) in group (?P<group>.+) has left, removing it from the group"
        ),
        _left,
    ),
    (
        re.compile(rf"Member {_METADATA} in group (?P<group>.+) has failed, removing it"),
        lambda found: Failed(found["group"], _member(found)),
    ),
    (
        re.compile(r"Member (?P<id>.+) in group (?P<group>.+) has failed, removing it"),
        lambda found: Failed(found["group"], _member(found)),
    ),
    (
        re.compile(
            r"Group (?P<group>.+) removed dynamic members who haven't joined: "
            rf"(?P<ids>(?:\w*\(|\[).*[\])]){_END}"
        ),
        lambda found: NotJoined(found["group"], ids_in(found["ids"])),
    ),
)
