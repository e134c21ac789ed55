"""Tests on virtual time."""

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from kohort.testing.virtual_clock import VirtualClock, VirtualClockLoop

is_debug = False
"""Whether loops are in asyncio's debug mode, which takes several times as long."""


def virtual(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """The test gets a `clock`, if it takes one, and a loop whose time jumps to the next event."""
    signature = inspect.signature(test)
    others = [one for name, one in signature.parameters.items() if name != "clock"]

    def run(*args: object, **arguments: object) -> None:
        clock = VirtualClock()
        if "clock" in signature.parameters:
            arguments["clock"] = clock
        loop_factory = partial(VirtualClockLoop, clock)
        with asyncio.Runner(loop_factory=loop_factory, debug=is_debug) as runner:
            runner.run(test(*args, **arguments))

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    run.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
    return run
