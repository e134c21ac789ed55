"""The names of the states that groups of all kinds have. Each kind documents its further states,
transitions and answers in its own package.
"""

from typing import Final

EMPTY: Final = "Empty"
"""No members; may hold offsets."""

DEAD: Final = "Dead"
"""Removed or being unloaded; clients that still ask must look for the group again."""
