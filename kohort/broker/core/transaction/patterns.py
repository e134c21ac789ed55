"""Regular expressions of clients, matched by RE2, which never backtracks: the time is proportional
to the length of the text times that of the pattern, for any pattern. Kafka uses RE2/J, its Java
port.
"""

from __future__ import annotations

from typing import Final

LENGTH_MAX: Final = 1_000
"""Maximum characters of a pattern."""
MEMORY_BYTES_MAX: Final = 1 << 18
"""Limit for one compiled pattern, because repetitions multiply what they repeat. It limits the
steps for each character to some ten thousand."""


class PatternError(ValueError):
    """The pattern is wrong, or too large."""


class Pattern:
    """A regular expression that a whole text has to match."""

    def __init__(self, text: str) -> None:
        """Raises PatternError."""
        # The import takes a few milliseconds, and few brokers ever need it.
        import re2  # noqa: PLC0415

        if len(text) > LENGTH_MAX:
            raise PatternError(f"a pattern has at most {LENGTH_MAX} characters")
        options = re2.Options()
        options.log_errors = False  # It would write to standard error.
        options.never_capture = True
        options.max_mem = MEMORY_BYTES_MAX
        try:
            self._compiled = re2.compile(text, options)
        except re2.error as error:
            raise PatternError(_message_of(error)) from error

    def matches(self, text: str) -> bool:
        """Whether the whole text matches."""
        return self._compiled.fullmatch(text) is not None


def _message_of(error: Exception) -> str:
    """Return RE2's message, which is bytes."""
    (reason,) = error.args or ("it cannot be understood",)
    return reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
