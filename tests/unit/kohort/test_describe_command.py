"""The first line that `kohort groups describe` prints of a group."""

from kohort.admin.groups import Group, Position
from kohort.cli.groups.state import _summary


def test_lags_are_added_and_unknown_ones_are_counted() -> None:
    group = Group(
        group_id="g",
        state="Empty",
        protocol_type="consumer",
        protocol="",
        coordinator="broker:1",
        members=[],
        positions=[
            Position("t", 0, committed=3, end=10),
            Position("t", 1, committed=10, end=15),
            Position("t", 2, committed=None, end=15),
        ],
    )
    assert "lag 12 and unknown for 1 partition" in _summary(group)
