"""``kohort import-kafka``: the directory of a stopped one-node Kafka becomes Kohort's."""

import argparse
import time
from pathlib import Path

from kohort.broker.kafka_directory.importing import carry_out_import, plan_import
from kohort.broker.storage.log.log import OS_FILES
from kohort.cli import kafka_directory
from kohort.cli.kafka_directory import change_hands


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See the module."""
    kafka_directory.add_arguments(parser)
    parser.add_argument(
        "--metadata-log-dir",
        type=Path,
        metavar="DIR",
        help="Kafka's metadata.log.dir, where it is not the data directory",
    )
    parser.set_defaults(ask=ask)


def ask(options: argparse.Namespace) -> None:
    """Raises CommandError."""
    change_hands(
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
        words=lambda plan: (
            f"a directory of Kohort: kohort serve --override log.dirs={options.directory}"
            f" --override node.id={plan.meta.node_id}"
        ),
    )
