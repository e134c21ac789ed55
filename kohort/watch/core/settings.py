"""The settings of the members of a classic group, as its stored generations contain them."""

from typing import NamedTuple

from kohort.groups.history.shares import parse_share
from kohort.groups.records import GroupRecord
from kohort.groups.requests import CONSUMER
from kohort.watch.core.difference import parse_subscription


class MemberSettings(NamedTuple):
    """What a member's last join asked for."""

    session_timeout_ms: int
    rebalance_timeout_ms: int
    mode: str | None
    """eager or cooperative; None if it does not show."""


def settings_of(old: GroupRecord, new: GroupRecord) -> dict[str, MemberSettings]:
    """Return the settings of the members of both generations, by id."""
    held = {member.member_id: bool(parse_share(member.assignment)) for member in old.members}
    settings = {}
    for record in (old, new):
        for member in record.members:
            mode = None
            if record is new and record.protocol_type == CONSUMER and held.get(member.member_id):
                subscription = parse_subscription(member.subscription)
                # An eager member gives up everything before it joins.
                is_eager = subscription is not None and not subscription.owned
                mode = "eager" if is_eager else "cooperative"
            settings[member.member_id] = MemberSettings(
                member.session_timeout_ms, member.rebalance_timeout_ms, mode
            )
    return settings
