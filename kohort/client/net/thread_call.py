"""Runs blocking work in a new thread, because the default executor belongs to the application."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")


async def run_in_thread(work: Callable[[], T], name: str) -> T:
    """Return the result of `work` in a thread, which continues if the caller is cancelled."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def set_result(result: T | None, error: BaseException | None) -> None:
        if done.done():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)  # type: ignore[arg-type]  # None only if T has it.

    def run() -> None:
        result, failure = None, None
        try:
            result = work()
        except BaseException as error:  # noqa: BLE001 - it is raised where it is waited for.
            failure = error
        # RuntimeError: the loop is closed, so no caller waits for the result.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(set_result, result, failure)

    threading.Thread(target=run, name=name, daemon=True).start()
    return await done
