"""Prints progress messages to standard error; standard output is reserved for results."""

import sys


def announce(text: str) -> None:
    print(f"kohort: {text}", file=sys.stderr, flush=True)  # noqa: T201 - printing is its purpose.
