"""Describes which members a running rebalance waits for, since when, and until when."""

from collections.abc import Iterator
from typing import Any, Final

from kohort.formats.text import counted, duration
from kohort.groups.history.wording import ClockText, member_text

Json = dict[str, Any]

_MEMBERS_SHOWN: Final = 10

_TO_DO: Final = {
    "join": " to join again",
    "sync": " to fetch the assignment",
    "revoke": " to give up {partitions}",
    "return": " to return from a restart",
    "tell": " to send a heartbeat and learn of the assignment",
    "give": " to send a heartbeat and get partitions that are free",
}


def waiting_lines(answer: Json, clock_text: ClockText) -> Iterator[str]:
    """Yield a summary line; for several awaited members, also one for each of the first ten."""
    waiting = answer["waiting"]
    now_ms = answer["at_ms"]
    alive = "".join(f" {text}." for text in _signs_of_life(waiting, now_ms, clock_text))
    yield f"Right now it waits {waited_for(waiting)}, {_times(waiting, now_ms, clock_text)}.{alive}"
    listed = waiting.get("members", [])
    if len(listed) < 2:
        return
    for member in listed[:_MEMBERS_SHOWN]:
        yield f"  {_name(member)}"
    left = waiting["member_count"] - min(len(listed), _MEMBERS_SHOWN)
    if left > 0:
        yield f"  and {left} more"


def waited_for(waiting: Json) -> str:
    """Return what the rebalance waits for: "for member x to join again"."""
    phase = waiting["phase"]
    if phase == "initial_delay":
        return "for more members, as the first rebalance of a group does"
    if phase == "store":
        return "for the assignment to be stored"
    if phase == "assign" and not waiting["member_count"]:
        return "for the end of the assignment interval"
    whom = []
    members = waiting.get("members", [])
    if waiting["member_count"] == 1 and len(members) == 1:
        whom.append(_name(members[0]))
    elif waiting["member_count"]:
        count_text = counted(waiting["member_count"], "member")
        whom.append(f"at least one of {count_text}" if waiting.get("any_of") else count_text)
    if waiting["pending_count"]:
        ids = counted(waiting["pending_count"], "new member")
        whom.append(f"{ids} that got an id and has not come back with it")
    text = f"for {' and '.join(whom)}" if whom else "for its turn"
    if waiting["member_count"]:
        count = waiting.get("partition_count")
        partitions = counted(count, "partition") if count else "partitions"
        names = waiting.get("partitions", ())
        if names and len(names) == count:
            partitions = ", ".join(names)
        text += _TO_DO.get(phase, "").format(partitions=partitions)
    blocked_count = waiting.get("blocked_count")
    if blocked_count:
        verb = "waits" if blocked_count == 1 else "wait"
        text += f", while {counted(blocked_count, 'member')} {verb} for partitions"
    if phase == "assign":
        text += " to hand in or fetch the assignment"
    return text


LONG_WAIT_MS: Final = 5_000
"""A wait of this length is long: heartbeats, with which members learn of a rebalance, usually have
shorter intervals."""


def session_end_ms(waiting: Json) -> int | None:
    """If the rebalance waits for a single member, return when its session ends without another
    heartbeat; None if the rebalance stops waiting before that time, or if the time is unknown.
    """
    members, until_ms = waiting.get("members", ()), waiting["until_ms"]
    end_ms: int | None = members[0].get("session_until_ms") if len(members) == 1 else None
    return end_ms if end_ms is not None and until_ms is not None and end_ms < until_ms else None


def _signs_of_life(waiting: Json, now_ms: int, clock_text: ClockText) -> Iterator[str]:
    """Say whether the members that do not join send heartbeats: if so, their applications do not
    poll, or are busy.
    """
    waited_ms = now_ms - waiting["since_ms"]
    silences = [member.get("silent_ms") for member in waiting.get("members", ())]
    if waiting["phase"] != "join" or waited_ms < LONG_WAIT_MS or not silences or None in silences:
        return
    who = "It" if len(silences) == 1 else "All of them"
    longest_ms = max(silences)
    if longest_ms < waited_ms - LONG_WAIT_MS:
        verb = "still sends" if len(silences) == 1 else "still send"
        ago = duration(longest_ms)
        why = (
            "the application does not poll, its listener is busy, or it is finishing records of"
            " partitions that it gives up"
        )
        yield f"{who} {verb} heartbeats, the last {ago} ago, but {why}"
    elif len(silences) == 1:
        end_ms = session_end_ms(waiting)
        removed = ""
        if end_ms is not None:
            left = duration(max(end_ms - now_ms, 0))
            removed = f"; without another it is removed at {clock_text(end_ms)} (in {left})"
        yield f"Its last heartbeat was {duration(longest_ms)} ago{removed}"


def _name(member: Json) -> str:
    return member_text(
        member["member_id"], member["instance_id"], member["host"], member["client_id"]
    )


def _times(waiting: Json, now_ms: int, clock_text: ClockText) -> str:
    since_ms, until_ms = waiting["since_ms"], waiting["until_ms"]
    text = f"since {clock_text(since_ms)} ({duration(max(now_ms - since_ms, 0))})"
    if until_ms is None:
        return text
    left_ms = max(until_ms - now_ms, 0)
    return f"{text}, until {clock_text(until_ms)} at the latest ({duration(left_ms)} left)"
