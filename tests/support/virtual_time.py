"""Tests on virtual time."""

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from typing import Any

from kohort.testing.virtual_clock import VirtualClock
from kohort.testing.virtual_loop import VirtualClockLoop


def virtual(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """The test gets a `clock`, and a loop whose time jumps to the next thing that happens."""
    signature = inspect.signature(test)
    others = [one for name, one in signature.parameters.items() if name != "clock"]

    def run(*args: object, **arguments: object) -> None:
        clock = VirtualClock()
        with asyncio.Runner(loop_factory=lambda: VirtualClockLoop(clock), debug=True) as runner:
            runner.run(test(*args, **arguments, clock=clock))

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    run.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
    return run
