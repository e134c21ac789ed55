"""What ``kohort export-kafka`` and ``kohort import-kafka`` share: the plan is told and checked."""

from __future__ import annotations

import argparse
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol, TypeVar

from kohort.broker.kafka_directory.image import ClusterImage
from kohort.broker.kafka_directory.survey import Findings
from kohort.broker.storage.errors import DataDirectoryLockedError, StorageError
from kohort.broker.storage.lock import DataDirectoryLock
from kohort.broker.storage.metadata.store import MetadataError
from kohort.cli.broker_commands import run
from kohort.cli.errors import NotFoundError, RefusedCommandError, UnavailableError
from kohort.cli.options import print_json

PROGRESS_S: Final = 0.2


class Plan(Protocol):
    """What an export or an import would do, as far as it is told here."""

    @property
    def image(self) -> ClusterImage:
        """What is carried over."""
        ...

    @property
    def findings(self) -> Findings:
        """What is not, and why."""
        ...


P = TypeVar("P", bound=Plan)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", metavar="DIR", type=Path, help="the data directory")
    parser.add_argument(
        "--dry-run", action="store_true", help="look at everything, and change nothing"
    )
    parser.add_argument(
        "--leave-behind",
        action="store_true",
        help="go on although something cannot be carried over",
    )
    parser.add_argument("--json", action="store_true", help="for programs: the whole answer")
    parser.epilog = (
        "The directory changes hands where it is: no record is copied or changed. "
        "Exit codes: 0; 1 there is no such directory; 2 usage; 3 it cannot be done as things are."
    )
    parser.set_defaults(run=run)


@contextmanager
def held(directory: Path) -> Iterator[None]:
    """Hold a directory that no broker has.

    Raises:
        NotFoundError: there is none.
        UnavailableError: a broker runs on it, or the disk fails.
    """
    if not directory.is_dir():
        raise NotFoundError(f"there is no directory {directory}")
    try:
        with DataDirectoryLock(directory):
            yield
    except DataDirectoryLockedError as error:
        raise UnavailableError(f"{error}: stop it first") from error
    except (OSError, StorageError, MetadataError) as error:
        raise UnavailableError(f"{directory}: {error}") from error


def change_hands(
    options: argparse.Namespace,
    becomes: str,
    *,
    make_plan: Callable[[Progress], P],
    carry_out: Callable[[P, Progress], None],
    words: Callable[[P], str],
) -> None:
    """Plan it, check it, do it unless it is a dry run, and tell of it. Raises CommandError.

    Args:
        becomes: whose directory it becomes.
        words: what it is now, and what comes next.
    """
    progress = Progress()
    with held(options.directory):
        plan = make_plan(progress)
        progress.end()
        check(options, plan.findings, becomes)
        if not options.dry_run:
            carry_out(plan, progress)
            progress.end()
    done = "it can become" if options.dry_run else "it is now"
    print_result(options, plan.image, plan.findings, f"{done} {words(plan)}")


def check(options: argparse.Namespace, findings: Findings, becomes: str) -> None:
    """Tell what was found; whether it can be done. Raises RefusedCommandError."""
    if findings.problems:
        raise RefusedCommandError(
            _listed(f"{options.directory} cannot become {becomes}:", findings.problems)
        )
    if findings.left and not (options.leave_behind or options.dry_run):
        raise RefusedCommandError(
            _listed("this would not be carried over:", findings.left)
            + "\n--leave-behind goes on without it"
        )


def print_result(
    options: argparse.Namespace, image: ClusterImage, findings: Findings, sentence: str
) -> None:
    """What is carried, what is not, and what comes next."""
    counts = counted(image)
    if options.json:
        print_json(
            {
                "directory": str(options.directory),
                "done": not options.dry_run,
                "carried": counts,
                "left": findings.left,
                "notes": findings.notes,
                "next": sentence,
            }
        )
        return
    width = max(len(f"{count:,}") for count in counts.values())
    print("\n".join(f"{count:>{width},} {what}" for what, count in counts.items()))
    if findings.left:
        print(_listed("left behind:", findings.left))
    for note in findings.notes:
        print(note)
    print(sentence)


def counted(image: ClusterImage) -> dict[str, int]:
    """How many there are of what is carried over."""
    return {
        "topics": len(image.topics),
        "partitions": sum(len(topic.partitions) for topic in image.topics.values()),
        "configs": sum(map(len, image.configs.values())),
        "credentials of users": len(image.credentials),
        "access rules": len(image.rules),
        "quotas": sum(map(len, image.quotas.values())),
    }


class Progress:
    """Called with how far it is; says so on a terminal, now and then."""

    def __init__(self) -> None:
        self._is_wanted = sys.stderr.isatty()
        self._told_s = time.monotonic()

    def __call__(self, what: str, done: int, total: int) -> None:
        """See `ReportProgress`."""
        now_s = time.monotonic()
        if self._is_wanted and now_s - self._told_s >= PROGRESS_S:
            self._told_s = now_s
            print(f"\r\033[K{what}: {done:,} of {total:,}", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        """Take the line away."""
        if self._is_wanted:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


def new_id() -> bytes:
    """16 bytes that were never used, and whose text begins with no dash: it may be an argument."""
    while True:
        value = uuid.uuid4().bytes
        if value[0] >> 2 != 0b111110:
            return value


def _listed(head: str, lines: list[str]) -> str:
    return "\n".join([head, *(f"  - {line}" for line in lines)])
