"""Users disabled by the current settings, whose authentication fails.

Their open connections stay, unless the settings disconnect the user as well.
"""

from collections.abc import Callable
from urllib.parse import unquote

from kohort.broker.config.current import CurrentConfig
from kohort.broker.core.security.session import ANONYMOUS, USER, Session


class DisabledUsers:
    """The disabled users. Names are compared exactly."""

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
        """Call `disconnect` with a predicate of the sessions to end, after changes from now on."""
        self._disconnect = disconnect

    def _on_change(self) -> None:
        config = self._settings.config
        before = self._disconnected
        # Names are percent-encoded, because they are items of a comma-separated list.
        self._names = frozenset(map(unquote, config.kohort_users_disabled))
        self._disconnected = self._names & {*map(unquote, config.kohort_users_disconnected)}
        ending = self._disconnected - before
        if ending:
            self._disconnect(lambda session: _is_of(session, ending))


def _is_of(session: Session, users: frozenset[str]) -> bool:
    """Whether the session is that of an authenticated client with one of the names."""
    principal = session.principal
    return principal != ANONYMOUS and principal.type == USER and principal.name in users
