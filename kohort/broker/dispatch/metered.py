"""Coroutine wrapper that measures running time, excluding suspension.

A request may run in many event loop iterations; it is charged for their sum.
"""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from time import perf_counter
from types import TracebackType
from typing import Any, TypeVar

from kohort.broker.network.service import ConnectionInfo

T = TypeVar("T")


class MeteredCoroutine(Coroutine[Any, Any, T]):
    """Adds the time of each step to `ConnectionInfo.worked_s`."""

    __slots__ = ("_connection", "_work")

    def __init__(self, work: Coroutine[Any, Any, T], connection: ConnectionInfo) -> None:
        self._work = work
        self._connection = connection

    def send(self, value: Any) -> Any:  # noqa: ANN401 - as a coroutine's.
        begun_s = perf_counter()
        try:
            return self._work.send(value)
        finally:
            self._connection.worked_s += perf_counter() - begun_s

    def throw(
        self,
        kind: Any,  # noqa: ANN401 - as a coroutine's.
        value: object = None,
        traceback: TracebackType | None = None,
        /,
    ) -> Any:  # noqa: ANN401
        begun_s = perf_counter()
        try:
            if value is None and traceback is None:
                # The only form that is not deprecated since Python 3.12.
                return self._work.throw(kind)
            return self._work.throw(kind, value, traceback)
        finally:
            self._connection.worked_s += perf_counter() - begun_s

    def close(self) -> None:
        self._work.close()

    def __await__(self) -> Generator[Any, Any, T]:
        return self._work.__await__()
