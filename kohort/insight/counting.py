"""Formats counts with their nouns."""


def counted(count: int, noun: str) -> str:
    """Return the number with its noun: 1 group, 1,200 groups."""
    return f"1 {noun}" if count == 1 else f"{count:,} {noun}s"
