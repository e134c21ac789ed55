"""Parses the lines of Kafka's group coordinator, of all versions with the classic protocol.

Group ids and reasons are arbitrary text, so each pattern is anchored by the words around them.
Lines of other parts of the broker, and of groups with the consumer protocol (KIP-848), are ignored.
"""

import json
import re
from datetime import datetime, tzinfo
from typing import Any, Final, NamedTuple, TypeAlias


class Member(NamedTuple):
    """A member as named by a line; fields are None if the line does not contain them."""

    member_id: str
    instance_id: str | None = None
    client_id: str | None = None
    host: str | None = None
    session_timeout_ms: int | None = None
    rebalance_timeout_ms: int | None = None


class Preparing(NamedTuple):
    group: str
    generation: int
    reason: str | None


class Stabilized(NamedTuple):
    """The join phase ended: all members have joined, or the timeout has expired."""

    group: str
    generation: int
    members: int | None


class Assigned(NamedTuple):
    group: str
    generation: int
    leader: str | None


class Emptied(NamedTuple):
    group: str
    generation: int


class Joined(NamedTuple):
    group: str
    member: Member


class Left(NamedTuple):
    """A member left, or was removed by an administrator."""

    group: str
    member: Member
    text: str | None


class Failed(NamedTuple):
    group: str
    member: Member


class NotJoined(NamedTuple):
    """Members that had not joined in time were removed."""

    group: str
    member_ids: tuple[str, ...]


class Replaced(NamedTuple):
    """A static member's process returned; the line does not contain its new member id."""

    group: str
    member: Member
    """The static member, with its previous member id."""


Fact: TypeAlias = (
    Preparing | Stabilized | Assigned | Emptied | Joined | Left | Failed | NotJoined | Replaced
)


class Line(NamedTuple):
    at_ms: int
    """Wall-clock time at which the line was logged."""
    fact: Fact


_Patterns: TypeAlias = tuple[tuple[type[Fact], re.Pattern[str]], ...]


def read(line: str, zone: tzinfo) -> Line | None:
    """Parse a log line; return None if it is not about a group.

    `zone` is the broker's time zone: in Kafka's default layout, times have no UTC offset.
    """
    return _read(line, zone, _PATTERNS)


def read_departure(line: str, zone: tzinfo) -> Line | None:
    """Parse a log line about a member that left a consumer group (KIP-848); return None for other
    lines. Arguments as in `read`.
    """
    return _read(line, zone, _CONSUMER_PATTERNS)


def _read(line: str, zone: tzinfo, patterns: _Patterns) -> Line | None:
    # Most lines are from other parts of the broker, and this test is faster than any pattern.
    if "roup" not in line:
        return None
    text = message(line)
    stamp = _STAMP.search(text)
    # A JSON layout has a separate field for the time.
    fact = _fact(_LOGGER.sub("", text if stamp is None else text[stamp.end() :]), patterns)
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
    """Return the message of a line that is, or ends with, a JSON object; otherwise the line itself.

    Docker's json-file driver and JSON layouts write such lines; a message may itself be such a
    line.
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


def parse_ids(text: str) -> tuple[str, ...]:
    """Return the elements of a list printed by Java or Scala, ``[a, b]`` or ``Set(a, b)``."""
    inner = re.fullmatch(r"(?:\w*\(|\[)(.*)[\])]", text.strip())
    return tuple(part for part in (inner[1] if inner else text).split(", ") if part)


def optional(text: str | None) -> str | None:
    """Parse an optional value printed by Java or Scala: None, null, Some(x), Optional[x], x."""
    if text in {None, "None", "null", "Optional.empty", ""}:
        return None
    assert text is not None
    match = re.fullmatch(r"Some\((.*)\)|Optional\[(.*)\]", text)
    return (match[1] or match[2]) if match else text


def reason_text(text: str | None) -> str | None:
    return None if text in {None, "", "not provided"} else text


_STAMP: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[ T](\d\d):(\d\d):(\d\d)(?:[.,](\d{3})\d*)?(Z|[+-]\d\d:?\d\d)?"
)


MESSAGE_FIELDS: Final = ("log", "message", "msg")
"""Names of the message field in JSON lines."""

_JSON_LEVELS: Final = 2

_LOGGER: Final = re.compile(
    r"\s*(?:\((?:\w+\.)+[\w$]+(?::\d+)?\)(?: \[[^][]*\])?|\| (?:\w+\.)+[\w$]+ \([^()]*\))?\s*$"
)
"""Text that log layouts append to the message: " (kafka.coordinator.group.GroupCoordinator)",
perhaps with a line number, or with the thread in Strimzi's layout: " [executor-Heartbeat]"."""


def _millis(stamp: re.Match[str], zone: tzinfo) -> int:
    *numbers, fraction, offset = stamp.groups()
    year, month, day, hour, minute, second = map(int, numbers)
    if offset:
        zone = datetime.strptime(offset, "%z").tzinfo or zone
    moment = datetime(year, month, day, hour, minute, second, tzinfo=zone)
    return int(moment.timestamp()) * 1000 + int(fraction or 0)


def _fact(text: str, patterns: _Patterns) -> Fact | None:
    for kind, pattern in patterns:
        match = pattern.search(text)
        if match is not None:
            return _made(kind, match.groupdict())
    return None


def _made(kind: Any, parts: dict[str, Any]) -> Fact:  # noqa: ANN401 - the class of a fact.
    """Create a `kind` from the named groups of its pattern: fields of `kind` or of `Member`."""
    numbers = ("generation", "members", "session_timeout_ms", "rebalance_timeout_ms")
    values = parts | {name: int(parts[name]) for name in numbers if parts.get(name)}
    values["instance_id"] = optional(parts.get("instance_id"))
    values["text"] = reason_text(parts.get("text"))
    values["member_ids"] = parse_ids(parts.get("member_ids") or parts.get("member_id") or "")
    if "member_id" in parts:
        values["member"] = Member._make(map(values.get, Member._fields))
    fact: Fact = kind._make(map(values.get, kind._fields))
    return fact


_TOPIC: Final = r"(?: \(__consumer_offsets-\d+\))?"
_END: Final = r"\.?$"
_METADATA: Final = (
    r"MemberMetadata\(memberId=(?P<member_id>.*?), groupInstanceId=(?P<instance_id>.*?), "
    r"clientId=(?P<client_id>.*?), clientHost=(?P<host>.*?), "
    r"sessionTimeoutMs=(?P<session_timeout_ms>\d+), "
    r"rebalanceTimeoutMs=(?P<rebalance_timeout_ms>\d+), "
    r"supportedProtocols=.*?\)"
)


def _pattern(kind: type[Fact], text: str) -> tuple[type[Fact], re.Pattern[str]]:
    return kind, re.compile(text)


_PATTERNS: Final = (
    # Kafka up to 0.10 writes "restabilize"; up to 2.0, state and reason are missing.
    _pattern(
        Preparing,
        r"Preparing to (?:rebalance|restabilize) group (?P<group>.+?)"
        r"(?: in state \w+)? with old generation (?P<generation>\d+)"
        rf"{_TOPIC}(?: \(reason: (?P<reason>.*)\))?{_END}",
    ),
    _pattern(
        Stabilized,
        r"Stabilized group (?P<group>.+) generation (?P<generation>\d+)"
        rf"{_TOPIC}(?: with (?P<members>\d+) members)?{_END}",
    ),
    # Up to Kafka 2.7, the leader's id is missing.
    _pattern(
        Assigned,
        r"Assignment received from leader (?:(?P<leader>.+?) )?for group (?P<group>.+) "
        r"for generation (?P<generation>\d+)",
    ),
    _pattern(
        Emptied, rf"Group (?P<group>.+) with generation (?P<generation>\d+) is now empty{_TOPIC}"
    ),
    # Kafka 4.x writes this for all dynamic members, earlier versions only at debug level.
    _pattern(
        Joined,
        r"Pending dynamic member with id (?P<member_id>.+) joins group (?P<group>.+) in \w+ "
        r"state\. Adding to the group now",
    ),
    # Dynamic members are only logged so with JoinGroup up to version 3: since version 4 they get
    # an id first, and must rejoin with it.
    _pattern(
        Joined,
        r"(?:Static [Mm]ember with groupInstanceId=(?P<instance_id>.+) and|Dynamic [Mm]ember "
        r"with) unknown member id joins group (?P<group>.+) in (?:state )?\w+(?: state)?\. "
        r"Created a new member id (?P<member_id>.+?) (?:for this member )?and add(?:ed)? "
        r"(?:the member )?to the group",
    ),
    _pattern(
        Replaced,
        r"Static member with groupInstanceId=(?P<instance_id>.+) and unknown member id joins "
        r"group (?P<group>.+) in \w+ state\. "
        r"Replacing previously mapped member (?P<member_id>.+) with this",
    ),
    # Kafka 3.x; since 3.2 with the client's reason.
    _pattern(
        Left,
        rf"Member {_METADATA} has left group (?P<group>.+) through explicit `LeaveGroup`"
        rf"(?:; client reason: (?P<text>.*?))?{_END}",
    ),
    # Kafka 4.x. Does not match pending members, whose id was assigned but never used.
    _pattern(
        Left,
        r"\[Group (?P<group>.+)\] (?:Static )?Member (?P<member_id>.+?)"
        r"(?: with instance id (?P<instance_id>.+?))? has left group through explicit "
        rf"`LeaveGroup` request; client reason: (?P<text>.*?){_END}",
    ),
    # Kafka 2.4 to 2.8.
    _pattern(
        Left,
        r"Member\[group\.instance\.id (?P<instance_id>.+), member\.id (?P<member_id>.+)\] "
        r"in group (?P<group>.+) has left, removing it from the group",
    ),
    _pattern(
        Left,
        r"Member (?P<member_id>.+) in group (?P<group>.+) has left, removing it from the group",
    ),
    _pattern(Failed, rf"Member {_METADATA} in group (?P<group>.+) has failed, removing it"),
    _pattern(Failed, r"Member (?P<member_id>.+) in group (?P<group>.+) has failed, removing it"),
    _pattern(
        NotJoined,
        r"Group (?P<group>.+) removed dynamic members who haven't joined: "
        rf"(?P<member_ids>(?:\w*\(|\[).*[\])]){_END}",
    ),
)

_CONSUMER: Final = (
    r"\[GroupId (?P<group>.+)\] (?:Static m|M)ember (?P<member_id>\S+)"
    r"(?: with instance id \S+)? "
)
_FENCED: Final = f"{_CONSUMER}fenced from the group because "
_CONSUMER_PATTERNS: Final = (
    _pattern(Left, rf"{_CONSUMER}left the (?:consumer|share) group{_END}"),
    _pattern(Failed, rf"{_FENCED}the member session expired{_END}"),
    _pattern(NotJoined, rf"{_FENCED}it failed to transition from epoch"),
)
