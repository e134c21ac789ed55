"""Spark jobs that read a broker over the wire and keep what they learn in a lake of Delta tables.

`jobs` have the only session and do the I/O, `transformations` are functions of data frames. The
only room of the broker that may be imported is `kohort.groups`, which replays what-ifs.

`history`, `findings` and `advise` are for notebooks: they take a session, and return data frames.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kohort.pipeline.notebook import advise, findings, history

__all__ = ["advise", "findings", "history"]


def __getattr__(name: str) -> object:
    """The functions of `notebook`, which need Spark as nothing else here does."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from kohort.pipeline import notebook  # noqa: PLC0415 - only who asks has to have Spark.

    return getattr(notebook, name)
