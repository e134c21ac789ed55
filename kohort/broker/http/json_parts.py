"""Answers in JSON that are written bit by bit, and have an end, whatever there is to tell."""

import json
from http import HTTPStatus
from typing import Any, Final

from kohort.broker.http.messages import JSON, HttpResponse
from kohort.broker.runtime.slices import Slice

ANSWER_BYTES: Final = 8 << 20
"""Nothing is added to a list that has become so long. Thirty connections may each hold one."""

SLICE_MS: Final = 1
"""Budget in a turn of the loop: short, because a person who looks can wait."""


class Items:
    """The items of a JSON array, joined to pieces that are worth sending."""

    def __init__(self, piece: Slice) -> None:
        self._piece = piece
        self.parts: list[bytes] = []
        self.count = 0
        self._size_bytes = 0

    @property
    def is_full(self) -> bool:
        return self._size_bytes >= ANSWER_BYTES

    async def add(self, item: bytes) -> None:
        """Append an item; others may have their turn before this returns."""
        self.parts.append(b"," + item if self.parts else item)
        self.count += 1
        self._size_bytes += len(item)
        await self._piece.pause()


def dump(data: Any) -> bytes:  # noqa: ANN401 - whatever JSON takes.
    """`data` as JSON, without spaces."""
    return json.dumps(data, separators=(",", ":")).encode()


def answer(parts: list[bytes]) -> HttpResponse:
    """The answer that is made of these parts.

    Numbers of parts cost the connection, so small ones are joined.
    """
    parts.append(b"\n")
    # What is told is over in a moment.
    return HttpResponse(HTTPStatus.OK, JSON, _joined(parts), (("Cache-Control", "no-store"),))


def _joined(parts: list[bytes]) -> list[bytes]:
    joined: list[bytes] = []
    chunk: list[bytes] = []
    size = 0
    for part in parts:
        chunk.append(part)
        size += len(part)
        if size >= 64 * 1024:
            joined.append(b"".join(chunk))
            chunk, size = [], 0
    joined.append(b"".join(chunk))
    return joined
