"""``kohort export-kafka`` and ``import-kafka``: converts a stopped broker's data in place."""

import argparse
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar

from kohort.broker.config.network import Endpoint, parse_endpoints
from kohort.broker.kafka_directory.exporting import (
    CONTROLLER,
    KAFKA_LISTENERS,
    ExportPlan,
    carry_out_export,
    plan_export,
    settings_for_kafka,
)
from kohort.broker.kafka_directory.image import ClusterImage
from kohort.broker.kafka_directory.importing import carry_out_import, plan_import
from kohort.broker.kafka_directory.releases import KAFKA_4_4, RELEASES
from kohort.broker.kafka_directory.survey import Plan
from kohort.broker.storage.errors import DataDirectoryLockedError, StorageError
from kohort.broker.storage.filesystem import OS_FILES
from kohort.broker.storage.lock import DataDirectoryLock
from kohort.broker.storage.metadata.store import MetadataError
from kohort.broker.topics.names import INTERNAL_TOPICS
from kohort.cli.commands import run
from kohort.cli.errors import NotFoundError, RefusedCommandError, UnavailableError
from kohort.cli.options import add_json, print_result
from kohort.cli.output import Progress

NODE_ID: Final = 1

P = TypeVar("P", bound=Plan)


def add_export(parser: argparse.ArgumentParser) -> None:
    _add_arguments(parser)
    parser.add_argument(
        "--node-id",
        type=int,
        default=NODE_ID,
        metavar="N",
        help="node.id of the broker, the same in Kohort and Kafka (%(default)s)",
    )
    parser.add_argument(
        "--kafka",
        choices=RELEASES,
        default=KAFKA_4_4.name,
        help="the oldest Kafka release that can start from the directory (%(default)s)",
    )
    parser.add_argument(
        "--listeners",
        type=_listeners,
        default=KAFKA_LISTENERS,
        metavar="NAME://HOST:PORT,...",
        help="listeners for the printed Kafka settings, with the controller's under the name "
        f"{CONTROLLER} ({','.join(map(str, KAFKA_LISTENERS))})",
    )
    parser.set_defaults(handler=_export)


def add_import(parser: argparse.ArgumentParser) -> None:
    _add_arguments(parser)
    parser.add_argument(
        "--metadata-log-dir",
        type=Path,
        metavar="DIR",
        help="Kafka's metadata.log.dir, if it is not the data directory",
    )
    parser.set_defaults(handler=_import)


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", metavar="DIR", type=Path, help="the data directory")
    parser.add_argument(
        "--dry-run", action="store_true", help="check everything, but change nothing"
    )
    parser.add_argument(
        "--leave-behind",
        action="store_true",
        help="continue although some things cannot be converted",
    )
    add_json(parser)
    parser.epilog = (
        "The directory is converted in place: no record is copied or changed. "
        "Exit codes: 0; 1 no such directory; 2 usage; 3 it is in use; "
        "4 the conversion is not possible."
    )
    parser.set_defaults(run=run)


def _listeners(text: str) -> Sequence[Endpoint]:
    """Parse Kafka's setting `listeners`. Raises argparse.ArgumentTypeError."""
    try:
        endpoints = parse_endpoints(text.split(","))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    names = [endpoint.listener for endpoint in endpoints]
    if CONTROLLER not in names or len(names) < 2:
        raise argparse.ArgumentTypeError(
            f"expected a listener named {CONTROLLER}, and one for clients"
        )
    return endpoints


def _export(options: argparse.Namespace) -> None:
    convert(
        options,
        "Apache Kafka's",
        make_plan=lambda report: plan_export(
            OS_FILES,
            options.directory,
            node_id=options.node_id,
            new_id=new_id,
            report=report,
            release=RELEASES[options.kafka],
        ),
        carry_out=lambda plan, report: carry_out_export(
            OS_FILES, plan, now_ms=int(time.time() * 1000), report=report
        ),
        describe=lambda plan: _kafka_text(plan, options.listeners),
    )


def _kafka_text(plan: ExportPlan, listeners: Sequence[Endpoint]) -> str:
    settings = "\n".join(f"  {line}" for line in settings_for_kafka(plan, listeners))
    return (
        f"a directory of Apache Kafka {plan.release.name} (KRaft), which starts from it without"
        f" kafka-storage.sh. Settings that Kafka needs:\n{settings}"
    )


def _import(options: argparse.Namespace) -> None:
    convert(
        options,
        "Kohort's",
        make_plan=lambda report: plan_import(
            OS_FILES,
            options.directory,
            options.metadata_log_dir,
            now_ms=int(time.time() * 1000),
            report=report,
        ),
        carry_out=lambda plan, report: carry_out_import(OS_FILES, plan, report=report),
        describe=lambda plan: (
            f"a directory of Kohort: kohort serve --override log.dirs={options.directory}"
            f" --override node.id={plan.meta.node_id}"
        ),
    )


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Lock a data directory that no broker is running on.

    Raises:
        NotFoundError: the directory does not exist.
        UnavailableError: a broker is running on it, or the disk fails.
    """
    if not directory.is_dir():
        raise NotFoundError(f"no directory {directory}")
    try:
        with DataDirectoryLock(directory):
            yield
    except DataDirectoryLockedError as error:
        raise UnavailableError(f"{error}: stop the broker first") from error
    except (OSError, StorageError, MetadataError) as error:
        raise UnavailableError(f"{directory}: {error}") from error


def convert(
    options: argparse.Namespace,
    becomes: str,
    *,
    make_plan: "Callable[[Progress], P]",
    carry_out: "Callable[[P, Progress], None]",
    describe: Callable[[P], str],
) -> None:
    """Make a plan, check it, execute it unless this is a dry run, and print the result.

    Raises CommandError.

    Args:
        becomes: the new owner of the directory, as in "Kohort's".
        describe: text about the converted directory and the next steps.
    """
    progress = Progress()
    with locked(options.directory):
        plan = make_plan(progress)
        progress.end()
        check(options, plan, becomes)
        if not options.dry_run:
            carry_out(plan, progress)
            progress.end()
    done = "it can become" if options.dry_run else "it is now"
    print_outcome(options, plan, f"{done} {describe(plan)}")


def check(options: argparse.Namespace, plan: Plan, becomes: str) -> None:
    """Raise RefusedCommandError if the conversion is impossible, or would lose data although
    neither --leave-behind nor --dry-run is given.
    """
    if plan.problems:
        raise RefusedCommandError(
            _listed(f"{options.directory} cannot become {becomes}:", plan.problems)
        )
    if plan.left and not (options.leave_behind or options.dry_run):
        raise RefusedCommandError(
            _listed("the following would be left behind:", plan.left)
            + "\n--leave-behind continues without them"
        )


def print_outcome(options: argparse.Namespace, plan: Plan, sentence: str) -> None:
    counts = counted(plan.image)
    data = {
        "directory": str(options.directory),
        "done": not options.dry_run,
        "carried": counts,
        "left": plan.left,
        "notes": plan.notes,
        "next": sentence,
    }
    lines = [f"{what}: {count:,}" for what, count in counts.items()]
    if internal := sum(topic.name in INTERNAL_TOPICS for topic in plan.image.topics.values()):
        lines[0] += f", {internal} of them internal"
    if plan.left:
        lines.append(_listed("left behind:", plan.left))
    print_result(options, data, [*lines, *plan.notes, sentence])


def counted(image: ClusterImage) -> dict[str, int]:
    """Return the number of converted objects of each kind."""
    return {
        "topics": len(image.topics),
        "partitions": sum(len(topic.partitions) for topic in image.topics.values()),
        "configs": sum(map(len, image.configs.values())),
        "credentials of users": len(image.credentials),
        "access rules": len(image.rules),
        "quotas": sum(map(len, image.quotas.values())),
    }


def new_id() -> bytes:
    """A random UUID whose text does not begin with a dash, so that it can be a command argument."""
    while True:
        value = uuid.uuid4().bytes
        if value[0] >> 2 != 0b111110:
            return value


def _listed(head: str, lines: list[str]) -> str:
    return "\n".join([head, *(f"  - {line}" for line in lines)])
