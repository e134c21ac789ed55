"""Spark jobs that read topics from brokers and write tables of a lake (Delta or Iceberg).

Only `jobs` create sessions. Nothing here imports the broker or the consumer: brokers are reached
over the network.

`history`, `findings` and `advise` are for notebooks: they take a session, and return data frames.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kohort.pipeline.notebook import advise, findings, history

__all__ = ["advise", "findings", "history"]


def __getattr__(name: str) -> object:
    """Import the functions of `notebook` on first use, because only they need Spark."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from kohort.pipeline import notebook  # noqa: PLC0415 - needs Spark.

    return getattr(notebook, name)
