"""The topics that a group's leader watches."""

import pytest

from kohort.client.core.group.leading import CHANGES_MAX, WatchedTopics


def watching(counts: dict[str, int]) -> WatchedTopics:
    watched = WatchedTopics()
    watched.assigned(counts)
    return watched


@pytest.mark.parametrize(
    ("counts", "text"),
    [
        ({"t": 3, "u": 1}, ""),
        ({"t": 3, "u": 1, "other": 9}, ""),
        ({"t": 4, "u": 1}, "t, 3 -> 4"),
        ({"t": 3}, "u, 1 -> 0"),
        ({"t": 1, "u": 2}, "t, 3 -> 1; u, 1 -> 2"),
    ],
)
def test_changes_are_told_by_topic(counts: dict[str, int], text: str) -> None:
    assert watching({"u": 1, "t": 3}).changed(counts) == text


def test_of_many_changes_the_first_are_told() -> None:
    watched = watching({f"t{number}": 1 for number in range(100, 200)})
    assert watched.changed({}).count("->") == CHANGES_MAX


def test_metadata_kept_last_is_compared() -> None:
    watched = watching({"t": 1})
    assert watched.changed_meanwhile() == ""
    watched.keep({"t": 2})
    watched.keep({"t": 3})
    assert watched.changed_meanwhile() == "t, 1 -> 3"


def test_a_watch_that_has_ended_tells_nothing() -> None:
    watched = watching({"t": 1})
    watched.keep({"t": 2})
    watched.clear()
    watched.keep({"t": 2})
    assert (list(watched.names), watched.changed({"t": 2})) == ([], "")
    watched.assigned({"t": 1})
    assert watched.changed_meanwhile() == ""
