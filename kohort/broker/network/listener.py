"""One of the broker's listeners, as the connections that come by it know it."""

from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class Listener:
    """What its connections have in common."""

    name: str
    """Its name in `listeners`, in upper case."""
