"""What stands behind the question mark: few names, each at most once, nothing unknown."""

import re
from typing import Final

from kohort.broker.http.messages import BadRequestError
from kohort.broker.http.routes import decode

_NUMBER: Final = re.compile(r"[0-9]{1,9}")


class Query:
    """The parameters of one request."""

    def __init__(self, text: str, *names: str) -> None:
        """`names` are those that the page knows.

        Raises:
            BadRequestError: another name, a name twice, or a value that cannot be decoded. A typing
                error must not look like an answer.
        """
        self._values: dict[str, str] = {}
        # One more than could be right is enough to see that something is wrong.
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
        """The value as it is, None without one."""
        return self._values.get(name)

    def number(self, name: str, default: int, *, at_most: int) -> int:
        """A count from 1.

        Raises:
            BadRequestError: it is not one, or larger than `at_most`.
        """
        value = self._values.get(name)
        if value is None:
            return default
        if _NUMBER.fullmatch(value) and 1 <= int(value) <= at_most:
            return int(value)
        raise BadRequestError(f"{name} is a number from 1 to {at_most}")
