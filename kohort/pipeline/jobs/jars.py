"""``kohort pipeline jars``: downloads the jars that the other jobs would download at first use."""

import argparse
from pathlib import Path

from kohort.pipeline import jars


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--into",
        type=Path,
        default=jars.default_directory(),
        metavar="DIRECTORY",
        help=f"directory for the jars (%(default)s; {jars.DIRECTORY})",
    )
    parser.add_argument(
        "--s3", action="store_true", help="include the jars for lakes at s3a:// (13 MB more)"
    )


def run(options: argparse.Namespace) -> int:
    """Print the paths of the jars, for `spark-submit --jars`. Raises ReportedError."""
    print(",".join(map(str, jars.ensure(options.into, with_s3=options.s3))))
    return 0
