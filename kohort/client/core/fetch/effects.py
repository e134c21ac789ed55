"""The effects that the fetch state requests from its shell."""

from enum import Enum
from typing import NamedTuple


class Effect(Enum):
    WAKE_READERS = "wake readers"
    """Records or an error have arrived for waiting readers."""
    REFRESH = "refresh"
    """The metadata is outdated; call `next_fetches` when there is new metadata."""
    FETCH = "fetch"
    """The buffers have room for more records: call `next_fetches`."""


class Note(NamedTuple):
    text: str
    is_warning: bool = False
