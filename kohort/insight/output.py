"""Shared by the commands about histories: progress messages, output files, the time zone option."""

import argparse
import sys
from datetime import UTC
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError


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


def add_timezone(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--timezone",
        type=_zone,
        default=UTC,
        metavar="NAME",
        help="time zone of logs whose times have no offset, such as Europe/Berlin (UTC)",
    )


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise argparse.ArgumentTypeError(f"unknown time zone {name!r}") from error
