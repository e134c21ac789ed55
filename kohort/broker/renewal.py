"""New objects in the place of equal ones.

An object that was made while very many others were there lies among them, and keeps the memory
around it from going back to the system when those have gone. Whoever keeps some of each group for
long makes them anew then: `MemoryKeeper` asks for it.
"""

from collections.abc import Callable
from typing import TypeAlias

from kohort.broker.core.steps import Steps

Renewal: TypeAlias = Callable[[], Steps[None]]
"""Begins to make anew what somebody keeps, in steps of a millisecond or so."""


def renewed_text(text: str) -> str:
    """The same text in an object of its own."""
    return text.encode("utf-8", "surrogatepass").decode("utf-8", "surrogatepass")


def renewed_number(number: int) -> int:
    """The same number in an object of its own, unless it is one of the small ones that everybody
    shares.
    """
    return number + 0  # The interpreter makes a new object for each sum.
