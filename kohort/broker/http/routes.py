"""Routing of paths to pages.

A path is fixed (`/metrics`) or has segments in braces (`/groups/{group}`), which match any one
segment of the request's path. Names in paths are percent-encoded, including slashes.
"""

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote_to_bytes

from kohort.broker.http.messages import AnyPage, BadRequestError

_BROKEN_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")


class Routes:
    """All pages of one HTTP port."""

    def __init__(self, pages: Mapping[str, AnyPage]) -> None:
        self._fixed = {path: page for path, page in pages.items() if "{" not in path}
        self._patterns = {
            tuple(path.split("/")): page for path, page in pages.items() if "{" in path
        }

    def find(self, path: str) -> tuple[AnyPage, tuple[str, ...]] | None:
        """Return the page for a request's path (undecoded), and the values of the page's braces.

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
