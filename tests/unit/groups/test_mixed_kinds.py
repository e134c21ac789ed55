"""A log with records of two kinds of groups under one id, as damage to its keys leaves it."""

import pytest

from kohort.groups.config import GroupConfig
from kohort.groups.consumer.membership import ConsumerMembership
from kohort.groups.consumer.records import EpochRecord, TargetEpochRecord
from kohort.groups.encoding import types_of_kind
from kohort.groups.group import Group
from kohort.groups.kinds import GroupKind
from kohort.groups.records import DurableRecord
from kohort.groups.share.data import ShareSettings
from kohort.groups.share.membership import ShareMembership
from kohort.groups.share.records import ShareEpochRecord
from tests.support.groups.consumer_group import ConsumerGroup
from tests.support.groups.share_group import ShareGroup

OF_CONSUMERS: list[DurableRecord] = [EpochRecord("g", 3, 0), TargetEpochRecord("g", 3, 0)]
OF_SHARES: list[DurableRecord] = [ShareEpochRecord("g", 5, 0)]


@pytest.mark.parametrize(
    ("records", "kind"),
    [
        (OF_CONSUMERS + OF_SHARES, ShareMembership),
        (OF_SHARES + OF_CONSUMERS, ConsumerMembership),
    ],
)
def test_the_last_record_says_the_kind_and_the_others_are_left_out(
    records: list[DurableRecord], kind: type
) -> None:
    consumers, shares = ConsumerGroup(), ShareGroup(ShareSettings())
    group = Group(
        "g",
        GroupConfig(),
        {
            **dict.fromkeys(types_of_kind(GroupKind.CONSUMER), consumers.new_membership),
            **dict.fromkeys(types_of_kind(GroupKind.SHARE), shares.new_membership),
        },
    )
    group.restore(records, shares.now)
    assert group.membership is not None
    assert isinstance(group.membership, kind)
    assert group.membership.describe().state == "Empty"
