"""Numbers with their nouns, in what the jobs and the page say."""


def counted(count: int, noun: str) -> str:
    """The number with its noun: 1 group, 1,200 groups."""
    return f"1 {noun}" if count == 1 else f"{count:,} {noun}s"
