"""What waits for a group is taken out in the order in which it came."""

from hypothesis import given
from hypothesis import strategies as st

from kohort.broker.coordinator.command import Command
from kohort.broker.coordinator.inbox import COMMANDS_PER_BATCH, Inbox
from kohort.groups.effects import TimerKey


def command(*, is_exclusive: bool = False, shares_append: bool = False) -> Command:
    return Command(
        step=lambda group, now: None,
        ticket=None,
        is_exclusive=is_exclusive or shares_append,
        shares_append=shares_append,
    )


def key(number: int) -> TimerKey:
    return TimerKey("session", f"member-{number}")


WHAT_COMES = st.lists(
    st.sampled_from(["command", "exclusive", "sharing", "due", "take", "put back"]), max_size=40
)


@given(WHAT_COMES)
def test_a_deadline_comes_after_commands_that_were_there_before_it(coming: list[str]) -> None:
    inbox, put, taken = Inbox(), list[object](), list[object]()

    def take(*, puts_back: bool = False) -> None:
        due, commands = inbox.take_batch()
        assert due or commands
        assert not due or not any(one.is_exclusive for one in commands)
        sharing = [one.shares_append for one in commands if one.is_exclusive]
        assert len(commands) == 1 or not sharing or all(sharing)
        assert len(sharing) in {0, len(commands)}
        if puts_back and len(commands) > 1 and commands[0].shares_append:
            inbox.put_back(commands[1:])
            commands = commands[:1]
        taken.extend((*due, *commands))

    for number, what in enumerate(coming):
        if what == "due":
            inbox.put_due([key(number)])
            put.append(key(number))
        elif what in {"take", "put back"}:
            if not inbox.is_empty:
                take(puts_back=what == "put back")
        else:
            kind = {"is_exclusive": what == "exclusive", "shares_append": what == "sharing"}
            inbox.append(command(**kind))
            put.append(inbox[-1])
    while not inbox.is_empty:
        take()
    assert len(taken) == len(put)
    assert [one for one in taken if isinstance(one, Command)] == [
        one for one in put if isinstance(one, Command)
    ]
    for place, one in enumerate(put):
        if isinstance(one, TimerKey):
            # It may come earlier than what is behind it, and only by the first of its batch.
            before = put[: place if place == 0 else _first_due_since(put, place, taken)]
            assert all(taken.index(other) < taken.index(one) for other in before)


def _first_due_since(put: list[object], place: int, taken: list[object]) -> int:
    """The place of the first deadline that was taken out together with the one at `place`."""
    at = taken.index(put[place])
    while at and isinstance(taken[at - 1], TimerKey):
        at -= 1
    return put.index(taken[at])


def test_a_batch_is_bounded_and_deadlines_count_what_was_taken() -> None:
    inbox = Inbox()
    inbox += [command() for _ in range(COMMANDS_PER_BATCH + 1)]
    inbox.put_due([key(1)])
    inbox.append(command())
    sizes = []
    while not inbox.is_empty:
        due, commands = inbox.take_batch()
        sizes.append((len(due), len(commands)))
    assert sizes == [(0, COMMANDS_PER_BATCH), (0, 1), (1, 1)]
