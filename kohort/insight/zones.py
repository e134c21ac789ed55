"""The option for the time zone of brokers' logs."""

import argparse
from datetime import UTC
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError


def add_timezone(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--timezone",
        type=_zone,
        default=UTC,
        metavar="NAME",
        help="time zone of a broker's log whose times have none, as Europe/Berlin (UTC)",
    )


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise argparse.ArgumentTypeError(f"unknown time zone {name!r}") from error
