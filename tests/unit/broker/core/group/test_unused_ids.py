"""Ids that were handed out and not used are bounded over all groups; the oldest go first."""

from kohort.broker.core.group.unused_ids import GROUP_BYTES, ID_BYTES, UnusedIds


def test_what_they_weigh_is_counted_by_id_and_by_group() -> None:
    ids = UnusedIds()
    ids.add("a", "a-1")
    ids.add("a", "a-2")
    ids.add("b", "b-1")
    assert (len(ids), ids.size_bytes) == (3, 3 * ID_BYTES + 2 * GROUP_BYTES)
    ids.discard("a-1")
    ids.discard("a-1")
    ids.discard("unknown")
    assert (len(ids), ids.size_bytes) == (2, 2 * ID_BYTES + 2 * GROUP_BYTES)
    ids.discard("b-1")
    ids.discard("a-2")
    assert (len(ids), ids.size_bytes) == (0, 0)


def test_the_oldest_of_all_groups_are_taken_until_the_rest_fits() -> None:
    ids = UnusedIds(3 * ID_BYTES + 2 * GROUP_BYTES)
    for group_id, member_id in (("a", "a-1"), ("b", "b-1"), ("a", "a-2")):
        ids.add(group_id, member_id)
    assert list(ids.take_oldest()) == []
    ids.add("c", "c-1")
    assert ids.are_too_many
    assert list(ids.take_oldest()) == [("a", "a-1"), ("b", "b-1")]
    assert list(ids.take_oldest()) == []
    assert len(ids) == 2


def test_one_that_weighs_more_than_is_allowed_is_taken_as_well() -> None:
    ids = UnusedIds(0)
    ids.add("a", "a-1")
    assert list(ids.take_oldest()) == [("a", "a-1")]
    assert list(ids.take_oldest()) == []
