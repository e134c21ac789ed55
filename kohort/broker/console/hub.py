"""Notifies open pages of changed groups, through one stream per page: at once, or, while changes
continue, once a second.

An event contains only the changed ids; a page requests the data that it shows. So an event is built
once for all streams, and a stream that is not read holds at most one event: later changes turn it
into "anything may have changed". While no stream is open, groups are not observed.
"""

import asyncio
from collections.abc import Collection
from typing import Final

from kohort.broker.console.paths import HEADERS
from kohort.broker.groups_seen import GroupsSeen
from kohort.broker.http.json_parts import dump
from kohort.broker.runtime.clock import Clock
from kohort.groups.events import EVENTS, Event, OffsetsStored
from kohort.groups.requests import Now

STREAMS_MAX: Final = 16
"""Maximum number of streams: half of the HTTP server's connections, so that other requests can
still be answered."""

EVERY_MS: Final = 1_000
"""Interval between events while changes continue."""

BURST: Final = 5
"""Events that may be sent without waiting for `EVERY_MS`, so that each phase of a rebalance is
shown at once. For each `EVERY_MS` that passes, one more event may be sent, up to this number."""

APART_MS: Final = 50
"""Minimum time between events."""

CHANGED_MAX: Final = 200
CHANGED_CHARS_MAX: Final = 16 * 1024
"""Maximum total length of the ids in an event."""

QUIET_S: Final = 15.0
"""Interval of keep-alive comments on an idle stream: proxies close idle connections, and without
writes a connection would stay open forever after its client has disappeared."""

HELLO: Final = b"retry: 2000\nevent: hello\ndata: {}\n\n"
ANY: Final = b'event: groups\ndata: {"any":true,"changed":[]}\n\n'
QUIET: Final = b": quiet\n\n"


class Pace:
    """Limits the rate of events: the first `BURST` events are sent at once, then one per
    `EVERY_MS`.
    """

    def __init__(self) -> None:
        self._sent_ms = 0
        self._used_until_ms = 0
        """When the next event would be due if events were sent without bursts."""

    def left_ms(self, now_ms: int) -> int:
        """Return how long the next event has to wait."""
        prompt_ms = self._used_until_ms - (BURST - 1) * EVERY_MS
        return max(self._sent_ms + APART_MS - now_ms, prompt_ms - now_ms, 0)

    def record(self, now_ms: int) -> None:
        """Record that an event is sent now."""
        self._sent_ms = now_ms
        self._used_until_ms = max(self._used_until_ms, now_ms) + EVERY_MS


class EventStream:
    """The event stream of one open page. Implements `HttpStream`."""

    content_type = "text/event-stream"
    headers = HEADERS

    def __init__(self, hub: "EventHub") -> None:
        self._hub = hub
        self._pending: bytes | None = HELLO
        self._is_closed = False
        self._wake = asyncio.Event()

    def offer(self, event: bytes) -> None:
        """Send `event` next; if another event is pending, send "anything may have changed" in place
        of both.
        """
        self._pending = event if self._pending is None else ANY
        self._wake.set()

    async def wait_chunk(self) -> bytes | None:
        if self._pending is None and not self._is_closed:
            self._wake.clear()
            try:
                async with asyncio.timeout(QUIET_S):
                    await self._wake.wait()
            except TimeoutError:
                return QUIET
        if self._is_closed:
            return None
        chunk, self._pending = self._pending, None
        return chunk

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._wake.set()
            self._hub.forget(self)


class EventHub:
    """All streams of one broker. Observes the groups while any stream is open."""

    observed: Collection[type[Event]] = EVENTS - {OffsetsStored}
    """See `GroupObserver`. Commits are ignored, because they are too frequent."""

    def __init__(self, groups: GroupsSeen, clock: Clock) -> None:
        self._groups = groups
        self._clock = clock
        self._streams: set[EventStream] = set()
        self._changed: dict[str, None] = {}
        self._chars = 0
        self._is_any = False
        """Whether too much has changed for one event to list."""
        self._pace = Pace()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def stream_count(self) -> int:
        return len(self._streams)

    def open(self) -> EventStream | None:
        """Open a stream; None if the maximum number is open."""
        if len(self._streams) >= STREAMS_MAX:
            return None
        if not self._streams:
            self._groups.add_observer(self)
        stream = EventStream(self)
        self._streams.add(stream)
        return stream

    def forget(self, stream: EventStream) -> None:
        self._streams.discard(stream)
        if not self._streams:
            self._groups.remove_observer(self)
            self._clear()
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    def observe(self, group_id: str, event: Event, now: Now) -> None:
        del event
        if self._is_any or group_id in self._changed:
            return
        self._chars += len(group_id)
        if len(self._changed) >= CHANGED_MAX or self._chars > CHANGED_CHARS_MAX:
            self._is_any = True
        else:
            self._changed[group_id] = None
        if self._timer is None:
            left_s = self._pace.left_ms(now.ms) / 1_000
            self._timer = asyncio.get_running_loop().call_later(left_s, self._send_changes)

    def _send_changes(self) -> None:
        self._timer = None
        self._pace.record(self._clock.monotonic_ms())
        event = ANY
        if not self._is_any:
            data = dump({"any": False, "changed": list(self._changed)})
            event = b"event: groups\ndata: %b\n\n" % data
        self._clear()
        for stream in self._streams:
            stream.offer(event)

    def _clear(self) -> None:
        self._changed = {}
        self._chars = 0
        self._is_any = False
