"""Parsing of query strings: a few names, each at most once, and no unknown ones."""

import re
from typing import Final

from kohort.broker.http.messages import BadRequestError
from kohort.broker.http.routes import decode

_NUMBER: Final = re.compile(r"[0-9]{1,9}")


class Query:
    """The parameters of one request."""

    def __init__(self, text: str, *names: str) -> None:
        """`names` are the parameters of the page.

        Raises:
            BadRequestError: another name, a name twice, or a value that cannot be decoded. A typing
                error must not be ignored.
        """
        self._values: dict[str, str] = {}
        # One part more than allowed is enough to detect an error.
        for part in text.split("&", len(names) + 1):
            if not part:
                continue
            name, _, value = part.partition("=")
            if name not in names:
                known = ", ".join(names) or "none"
                raise BadRequestError(f"unknown parameter; there are: {known}")
            if name in self._values:
                raise BadRequestError(f"{name} is there twice")
            self._values[name] = decode(value.replace("+", "%20"))

    def text(self, name: str) -> str | None:
        """Return the value unchanged, None if it is absent."""
        return self._values.get(name)

    def number(self, name: str, default: int, *, at_most: int) -> int:
        """Return a count from 1.

        Raises:
            BadRequestError: it is not a count, or larger than `at_most`.
        """
        value = self._values.get(name)
        if value is None:
            return default
        if _NUMBER.fullmatch(value) and 1 <= int(value) <= at_most:
            return int(value)
        raise BadRequestError(f"{name} is a number from 1 to {at_most}")
