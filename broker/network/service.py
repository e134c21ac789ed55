"""The seam between connections, which move frames, and what answers the requests in them."""

from asyncio import Future
from collections.abc import Callable
from typing import Any, Protocol

from broker.handlers.context import ConnectionInfo
from broker.promise import Promise
from protocol.codec import Buffer

Answer = list[Buffer] | None
"""A response frame as buffers to be written in order, size included; None for no response."""


Waiting = Future[Any] | Promise[Any]
"""What a handler returns that has to wait: of the loop, or told at once."""


class PendingAnswer:
    """The answer to a request that has to wait for something."""

    __slots__ = ("finish", "future")

    def __init__(self, future: Waiting, finish: Callable[[], Answer]) -> None:
        self.future = future
        """Cancelled by the connection when the client is gone."""
        self.finish = finish
        """To be called once, when `future` is done; raises as `Service.serve`."""


class Service(Protocol):
    """What a connection hands its frames to."""

    def serve(self, connection: ConnectionInfo, frame: Buffer) -> Answer | PendingAnswer:
        """Answer one request. `frame` is the service's to keep, never to change.

        Raises:
            CloseConnection: the client can only be told by closing the connection.
        """
        ...

    def connection_lost(self, connection: ConnectionInfo) -> None:
        """The client is gone: give up what waits for it."""
        ...
