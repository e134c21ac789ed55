"""The value of a group's record, held against the codec's."""

import pytest

from broker.core.group.records import GroupRecord, StoredMember, encode_value
from protocol.codec import encode_versioned
from protocol.errors import EncodeError
from protocol.messages.offsets_topic import GroupMetadataValue, MemberMetadata

MEMBERS = (
    StoredMember("first", None, "client", "/10.0.0.1", 45_000, 300_000, b"metadata", b"share"),
    StoredMember("zweites-ü", "statisch-€", "", "", 2**31 - 1, -1, b"", b""),
    StoredMember("third", "", "client", "/10.0.0.1", 45_000, 300_000, b"\0" * 40_000, b"x"),
    StoredMember("", None, "client", "/10.0.0.1", 45_000, 300_001, b"m", b"s"),
)


@pytest.mark.parametrize("count", range(len(MEMBERS) + 1))
def test_a_group_is_written_as_the_codec_writes_it(count: int) -> None:
    record = GroupRecord("g", "consumer", 3, "range", "first", 99, MEMBERS[:count])
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
            for one in MEMBERS[:count]
        ],
    )
    assert encode_value(record) == encode_versioned(value, 3)


@pytest.mark.parametrize(
    "wrong",
    [MEMBERS[0]._replace(member_id="x" * 40_000), MEMBERS[0]._replace(client_id="x" * 40_000)],
)
def test_what_does_not_fit_is_refused_as_the_codec_refuses_it(wrong: StoredMember) -> None:
    with pytest.raises(EncodeError):
        encode_value(GroupRecord("g", "consumer", 3, "range", "first", 99, (wrong,)))
