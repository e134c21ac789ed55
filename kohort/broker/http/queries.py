"""Parses query strings, and rejects unknown and repeated parameters."""

import re
from typing import Final

from kohort.broker.http.messages import BadRequestError
from kohort.broker.http.routes import decode

_NUMBER: Final = re.compile(r"[0-9]{1,9}")


class Query:
    """The query parameters of one request."""

    def __init__(self, text: str, *names: str) -> None:
        """`names` are the parameters that the page accepts.

        Raises:
            BadRequestError: an unknown or repeated parameter, or a value that cannot be decoded. A
                misspelt parameter must not be ignored.
        """
        self._values: dict[str, str] = {}
        # One part more than allowed is enough to detect an error.
        for part in text.split("&", len(names) + 1):
            if not part:
                continue
            name, _, value = part.partition("=")
            if name not in names:
                known = ", ".join(names) or "none"
                raise BadRequestError(f"unknown parameter; allowed are: {known}")
            if name in self._values:
                raise BadRequestError(f"{name} is given twice")
            self._values[name] = decode(value.replace("+", "%20"))

    def text(self, name: str) -> str | None:
        """Return the decoded value, None if it is absent."""
        return self._values.get(name)

    def number(self, name: str, default: int, *, at_most: int) -> int:
        """Return a parameter that is a number from 1 to `at_most`.

        Raises:
            BadRequestError: it is not such a number.
        """
        value = self._values.get(name)
        if value is None:
            return default
        if _NUMBER.fullmatch(value) and 1 <= int(value) <= at_most:
            return int(value)
        raise BadRequestError(f"{name} must be a number from 1 to {at_most}")
