"""JSON responses that are built in time slices and have a bounded size."""

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

from kohort.broker.http.messages import JSON, HttpResponse
from kohort.broker.runtime.slices import Slice

ANSWER_BYTES: Final = 8 << 20
"""Size at which a list is truncated. Each of the 32 HTTP connections may hold one response."""

SLICE_MS: Final = 1
"""Time budget per event loop iteration: short, because these pages are not urgent."""


class Items:
    """The encoded items of a JSON array, with a bounded total size."""

    def __init__(self, time_slice: Slice) -> None:
        self._time_slice = time_slice
        self.parts: list[bytes] = []
        self.count = 0
        self._size_bytes = 0

    @property
    def is_full(self) -> bool:
        return self._size_bytes >= ANSWER_BYTES

    async def add(self, item: bytes) -> None:
        """Append an item; other tasks may run before this returns."""
        self.parts.append(b"," + item if self.parts else item)
        self.count += 1
        self._size_bytes += len(item)
        await self._time_slice.pause()


def dump(data: Any) -> bytes:  # noqa: ANN401 - any JSON value.
    """Encode `data` as JSON, without spaces."""
    return json.dumps(data, separators=(",", ":")).encode()


async def wait_dump(data: Mapping[str, Any], time_slice: Slice) -> list[bytes]:
    """Encode `data` as JSON in parts; items of lists one by one, as a list may be long."""
    parts: list[bytes] = []
    for name, value in data.items():
        parts.append(b"%b%b:" % (b"," if parts else b"{", dump(name)))
        if isinstance(value, list):
            items = Items(time_slice)
            for item in value:
                await items.add(dump(item))
            parts += [b"[", *items.parts, b"]"]
        else:
            parts.append(dump(value))
    parts.append(b"}" if parts else b"{}")
    return parts


def answer(parts: list[bytes]) -> HttpResponse:
    """Build the response from the parts of a JSON text, joining small parts."""
    parts.append(b"\n")
    # Must not be cached, because the state of the broker changes all the time.
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
