"""Routing of paths to pages, and the query parameters of pages.

A path is fixed (`/metrics`) or has segments in braces (`/groups/{group}`), which match any one
segment of the request's path. Names in paths are percent-encoded, including slashes.
"""

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote_to_bytes

from kohort.broker.http.messages import AnyPage, BadRequestError

_BROKEN_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")

_NUMBER: Final = re.compile(r"[0-9]{1,9}")
_COUNT: Final = re.compile(r"[0-9]{1,19}")


class Routes:
    def __init__(self, pages: Mapping[str, AnyPage]) -> None:
        self._fixed = {path: page for path, page in pages.items() if "{" not in path}
        self._patterns = {
            tuple(path.split("/")): page for path, page in pages.items() if "{" in path
        }

    def find(self, path: str) -> tuple[AnyPage, tuple[str, ...]] | None:
        """Return the page for a request's path (undecoded), and the values of its path parameters.

        Raises:
            BadRequestError: a segment cannot be decoded.
        """
        page = self._fixed.get(path)
        if page is not None:
            return page, ()
        segments = path.split("/")
        for pattern, page in self._patterns.items():
            values = _match(pattern, segments)
            if values:
                return page, tuple(decode(value) for value in values)
        return None


def decode(text: str) -> str:
    """Percent-decode a text.

    Raises:
        BadRequestError: it is not UTF-8, or has a percent sign without two hexadecimal digits.
    """
    if _BROKEN_ESCAPE.search(text):
        raise BadRequestError("a percent sign must be written as %25")
    try:
        return unquote_to_bytes(text).decode()
    except UnicodeDecodeError as error:
        raise BadRequestError("percent-encoded bytes must be UTF-8") from error


def _match(pattern: tuple[str, ...], segments: list[str]) -> list[str] | None:
    if len(pattern) != len(segments):
        return None
    values: list[str] = []
    for expected, segment in zip(pattern, segments, strict=True):
        if not expected.startswith("{"):
            if expected != segment:
                return None
        elif segment:
            values.append(segment)
        else:
            return None
    return values


class Query:
    def __init__(self, text: str, *names: str) -> None:
        """`names` are the parameters that the page accepts.

        Raises:
            BadRequestError: an unknown or repeated parameter, or a value that cannot be decoded. A
                misspelt parameter must not be ignored.
        """
        self._values: dict[str, str] = {}
        # One surplus part is enough to detect an error; the rest is not split.
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
        """Return a parameter's decoded value; None if the parameter is absent."""
        return self._values.get(name)

    def count(self, name: str) -> int | None:
        """Return a parameter that is a number of at least 0, such as an offset; None if it is
        absent.

        Raises:
            BadRequestError: it is not such a number.
        """
        value = self._values.get(name)
        if value is not None and not _COUNT.fullmatch(value):
            raise BadRequestError(f"{name} must be a number from 0 on")
        return None if value is None else int(value)

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
