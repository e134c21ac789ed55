"""The timers of classic groups."""

from typing import Final

from kohort.groups.effects import TimerKey

SESSION: Final = "session"
"""Kind of the timer that removes a silent member."""

PENDING: Final = "pending"
"""Kind of the timer that forgets a handed-out id with which no one has joined."""

JOIN_TIMER: Final = TimerKey("join")
SYNC_TIMER: Final = TimerKey("sync")
