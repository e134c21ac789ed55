"""What a job says while it runs: on standard error, so that its output stays its own."""

import sys


def announce(text: str) -> None:
    """Print one line."""
    print(f"kohort: {text}", file=sys.stderr, flush=True)  # noqa: T201 - that is what it is for.
