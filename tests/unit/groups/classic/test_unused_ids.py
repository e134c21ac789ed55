"""Ids that were handed out and not used are bounded over all groups; the oldest go first."""

from sys import getsizeof

from kohort.groups.classic.unused_ids import GROUP_BYTES, ID_BYTES, UnusedIds


def test_what_they_weigh_is_counted_by_id_and_by_group() -> None:
    ids = UnusedIds()
    ids.add("a", "a-1")
    ids.add("a", "a-2")
    ids.add("b", "b-1")
    assert (len(ids), ids.size_bytes) == (3, 3 * ID_BYTES + 2 * GROUP_BYTES + 2)
    ids.discard("a-1")
    ids.discard("a-1")
    ids.discard("unknown")
    assert (len(ids), ids.size_bytes) == (2, 2 * ID_BYTES + 2 * GROUP_BYTES + 2)
    ids.discard("b-1")
    ids.discard("a-2")
    assert (len(ids), ids.size_bytes) == (0, 0)


def test_a_group_weighs_what_its_name_does_once_and_four_times_beyond_ascii() -> None:
    ids = UnusedIds()
    narrow, wide = "n" * 32_000, "w" * 31_996 + "\U0001f600"
    ids.add(narrow, "n-1")
    ids.add(narrow, "n-2")
    assert ids.size_bytes == 2 * ID_BYTES + GROUP_BYTES + 32_000
    ids.add(wide, "w-1")
    assert ids.size_bytes >= 3 * ID_BYTES + 2 * GROUP_BYTES + 32_000 + getsizeof(wide) - 100
    ids.discard("n-1")
    ids.discard("w-1")
    assert ids.size_bytes == ID_BYTES + GROUP_BYTES + 32_000
    assert list(ids.take_oldest()) == []


def test_the_oldest_of_all_groups_are_taken_until_the_rest_fits() -> None:
    ids = UnusedIds(3 * ID_BYTES + 2 * (GROUP_BYTES + 1))
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
