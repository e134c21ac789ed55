"""The users that the current settings disable: a client with such a name is not let in.

Open connections stay, unless the settings say that the user is disconnected as well.
"""

from collections.abc import Callable
from urllib.parse import unquote

from kohort.broker.config.current import CurrentConfig
from kohort.broker.core.security.session import ANONYMOUS, USER, Session


class DisabledUsers:
    """See the module. Names are compared exactly."""

    def __init__(self, settings: CurrentConfig) -> None:
        self._settings = settings
        self._disconnect: Callable[[Callable[[Session], bool]], None] = lambda _: None
        self._names: frozenset[str] = frozenset()
        self._disconnected: frozenset[str] = frozenset()
        self._on_change()
        settings.on_change(self._on_change)

    def __contains__(self, user: str) -> bool:
        return user in self._names

    def on_disconnect(self, disconnect: Callable[[Callable[[Session], bool]], None]) -> None:
        """Call `disconnect` from now on, with a predicate of the sessions that have to end."""
        self._disconnect = disconnect

    def _on_change(self) -> None:
        config = self._settings.config
        before = self._disconnected
        # A name is an item of a list; commas in it are written as %2C.
        self._names = frozenset(map(unquote, config.kohort_users_disabled))
        self._disconnected = self._names & {*map(unquote, config.kohort_users_disconnected)}
        ending = self._disconnected - before
        if ending:
            self._disconnect(lambda session: _is_of(session, ending))


def _is_of(session: Session, users: frozenset[str]) -> bool:
    """Whether an authenticated client is one of the users."""
    principal = session.principal
    return principal != ANONYMOUS and principal.type == USER and principal.name in users
