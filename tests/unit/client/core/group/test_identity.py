"""A consumer's identity as other people's producers take it."""

import pytest
from confluent_kafka import Consumer

from kohort import GroupMetadata


def as_librdkafka_writes_it(group_id: str, instance_id: str | None) -> bytes:
    """The group metadata of a consumer that is not a member yet."""
    settings = {"bootstrap.servers": "localhost:1", "group.id": group_id, "log_level": 0}
    if instance_id is not None:
        settings["group.instance.id"] = instance_id
    consumer = Consumer(settings)
    written: bytes = consumer.consumer_group_metadata()
    consumer.close()
    return written


@pytest.mark.parametrize("group_id", ["g", "größe"])
@pytest.mark.parametrize("instance_id", [None, "i"])
def test_librdkafka_writes_the_same(group_id: str, instance_id: str | None) -> None:
    ours = GroupMetadata(group_id, group_instance_id=instance_id).for_librdkafka()
    assert ours == as_librdkafka_writes_it(group_id, instance_id)


def test_a_member_is_named_with_its_generation() -> None:
    data = GroupMetadata("g", 258, "m", "i").for_librdkafka()
    generation = (258).to_bytes(4, "little")
    assert data in (
        b"CGMDv2:" + generation + b"g\0m\0\0i\0",
        b"CGMDv2:" + generation[::-1] + b"g\0m\0\0i\0",
    )


@pytest.mark.parametrize("names", [("g\0",), ("g", 1, "\0"), ("g", 1, "m", "i\0i")])
def test_a_name_that_c_would_cut_off_is_refused(names: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="NUL characters"):
        GroupMetadata(*names).for_librdkafka()  # type: ignore[arg-type]
