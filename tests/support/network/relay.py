"""A relay between a client and its broker that can spoil the broker's answers.

It runs on the loop of the test, or `in_thread`. Clients are kept on it by the broker's
advertised.listeners.
"""

import asyncio
import contextlib
import struct
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class Spoiled:
    """What the client gets in place of an answer."""

    data: bytes
    """Size of the frame included; none of it: the answer never comes."""
    hangs_up: bool = False


Spoil = Callable[[int, bytes], Spoiled | None]
"""Given the api key and the answer without its size; None leaves it as it is."""


class Relay:
    """Listens on `port` and relays to `upstream_port`, both of 127.0.0.1."""

    def __init__(self, port: int, upstream_port: int) -> None:
        self.bootstrap = f"127.0.0.1:{port}"
        self.spoil: Spoil = lambda _key, _frame: None
        self._port = port
        self._upstream_port = upstream_port
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @contextmanager
    def in_thread(self) -> Iterator[Self]:
        """For clients that block; `spoil` is called in the thread."""
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever, daemon=True)
        thread.start()
        try:
            asyncio.run_coroutine_threadsafe(self.__aenter__(), loop).result(10)
            yield self
            asyncio.run_coroutine_threadsafe(self.__aexit__(), loop).result(10)
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join(10)
            loop.close()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)
        return self

    async def __aexit__(self, *exception: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        upstream: asyncio.StreamWriter | None = None
        try:
            broker, upstream = await asyncio.open_connection("127.0.0.1", self._upstream_port)
            keys: deque[int] = deque()
            ways = [
                asyncio.create_task(self._forward(reader, upstream, keys)),
                asyncio.create_task(self._answer(broker, writer, keys)),
            ]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            for end in (writer, upstream):
                if end is not None:
                    end.transport.abort()

    async def _answer(
        self, broker: asyncio.StreamReader, client: asyncio.StreamWriter, keys: deque[int]
    ) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                frame = await _frame(broker)
                spoiled = self.spoil(keys.popleft(), frame)
                client.write(_framed(frame) if spoiled is None else spoiled.data)
                await client.drain()
                if spoiled is not None and spoiled.hangs_up:
                    return

    async def _forward(
        self, client: asyncio.StreamReader, broker: asyncio.StreamWriter, keys: deque[int]
    ) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                frame = await _frame(client)
                keys.append(struct.unpack_from(">h", frame)[0])
                broker.write(_framed(frame))
                await broker.drain()


async def _frame(reader: asyncio.StreamReader) -> bytes:
    return await reader.readexactly(struct.unpack(">i", await reader.readexactly(4))[0])


def _framed(frame: bytes) -> bytes:
    return struct.pack(">i", len(frame)) + frame
