"""The value of a group's record, held against the codec's."""

import pytest

from kohort.groups.encoding import encode_value, value_steps
from kohort.groups.records import GroupRecord, StoredMember
from kohort.groups.steps import FEW
from kohort.protocol.codec import encode_versioned
from kohort.protocol.errors import EncodeError
from kohort.protocol.messages.offsets_topic import GroupMetadataValue, MemberMetadata

MEMBERS = (
    StoredMember("first", None, "client", "/10.0.0.1", 45_000, 300_000, b"metadata", b"share"),
    StoredMember("zweites-ü", "statisch-€", "", "", 2**31 - 1, -1, b"", b""),
    StoredMember("third", "", "client", "/10.0.0.1", 45_000, 300_000, b"\0" * 40_000, b"x"),
    StoredMember("", None, "client", "/10.0.0.1", 45_000, 300_001, b"m", b"s"),
)


MANY = tuple(MEMBERS[0]._replace(member_id=str(n)) for n in range(2 * FEW + 1))


@pytest.mark.parametrize(
    "members",
    [
        *(MEMBERS[:count] for count in range(len(MEMBERS) + 1)),
        MANY[:FEW],
        MANY[: FEW + 1],
        MANY[:-1],
        MANY,
    ],
    ids=len,
)
def test_a_group_is_written_as_the_codec_writes_it(members: tuple[StoredMember, ...]) -> None:
    record = GroupRecord("g", "consumer", 3, "range", "first", 99, members)
    value = GroupMetadataValue(
        protocol_type="consumer",
        generation=3,
        protocol="range",
        leader="first",
        current_state_timestamp=99,
        members=[
            MemberMetadata(
                member_id=one.member_id,
                group_instance_id=one.instance_id,
                client_id=one.client_id,
                client_host=one.client_host,
                rebalance_timeout=one.rebalance_timeout_ms,
                session_timeout=one.session_timeout_ms,
                subscription=one.subscription,
                assignment=one.assignment,
            )
            for one in members
        ],
    )
    assert encode_value(record) == encode_versioned(value, 3)


def test_a_large_group_is_written_in_steps() -> None:
    steps = value_steps(GroupRecord("g", "consumer", 3, "range", "0", 99, MANY))
    assert sum(1 for _ in steps) == 2


@pytest.mark.parametrize(
    "wrong",
    [MEMBERS[0]._replace(member_id="x" * 40_000), MEMBERS[0]._replace(client_id="x" * 40_000)],
)
def test_what_does_not_fit_is_refused_as_the_codec_refuses_it(wrong: StoredMember) -> None:
    with pytest.raises(EncodeError):
        encode_value(GroupRecord("g", "consumer", 3, "range", "first", 99, (wrong,)))
