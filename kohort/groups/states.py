"""The names of the states that groups of all kinds have. Each kind has further states, and says in
its own package how it moves from one to another and what it answers in each.
"""

from typing import Final

EMPTY: Final = "Empty"
"""No members; may hold offsets."""

DEAD: Final = "Dead"
"""Removed or being unloaded; clients that still ask must look for the group again."""
