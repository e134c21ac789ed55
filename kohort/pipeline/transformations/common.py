"""Shared by several transformations."""

from typing import Final

GROUP: Final = ("cluster_id", "group")
