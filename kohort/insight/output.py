"""Writes progress messages and whole files."""

import sys
from pathlib import Path


def announce(text: str) -> None:
    """Print a progress message to standard error; standard output is reserved for results."""
    print(f"kohort: {text}", file=sys.stderr, flush=True)  # noqa: T201 - printing is its purpose.


def write_whole(output: Path, text: str) -> None:
    """Replace a regular file atomically; write directly to a pipe or device.

    Raises:
        OSError: the file cannot be written.
    """
    if output.exists() and not output.is_file():
        output.write_text(text, encoding="utf-8")
        return
    unfinished = output.with_name(f".{output.name}.unfinished")
    try:
        unfinished.write_text(text, encoding="utf-8")
        unfinished.replace(output)
    except OSError:
        unfinished.unlink(missing_ok=True)
        raise
