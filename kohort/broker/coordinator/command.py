"""The commands in a group's inbox."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kohort.broker.runtime.deferred import Deferred
from kohort.groups.group import Group
from kohort.groups.requests import Now
from kohort.groups.steps import Steps

Step = Callable[[Group, Now], Steps[None] | None]


@dataclass(slots=True, eq=False)
class Command:
    """One operation on a group; commands are executed in the order of arrival."""

    step: Step
    """Executes the command. An exclusive command may return further steps, which are run in
    slices."""
    ticket: Deferred[Any] | None = None
    """The deferred response, completed by `step` or later; None for the broker's own commands."""
    answer_absent: object = None
    """The ticket's answer if the group does not exist when the command is submitted."""
    creates_group: bool = False
    """Whether to create the group, without members, if it does not exist."""
    is_exclusive: bool = False
    """Executed in a batch of its own, with no append in progress."""
    is_gathered: bool = False
    """Executed in the next loop iteration, with one append for all commands that arrive by then."""
    shares_append: bool = False
    """With `is_exclusive`: consecutive commands of this kind are executed in one batch, with one
    append."""
    writes_group_record: bool = False
    """Will probably write a GroupRecord, and can wait briefly to share its append with other
    commands."""
