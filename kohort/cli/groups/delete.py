"""``kohort groups delete``: forget groups that have no members, with their offsets."""

import argparse

from kohort.admin.cluster import RefusedError
from kohort.admin.group_changes import delete_group
from kohort.cli.errors import RefusedCommandError
from kohort.cli.not_found import no_group
from kohort.cli.options import add_kafka, cluster_of, print_json
from kohort.formats.text import shown
from kohort.protocol.errors import ErrorCode

_WHY = {
    ErrorCode.NON_EMPTY_GROUP: "it has members; stop them first, `kohort groups describe` shows "
    "which they are",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("groups", metavar="GROUP", nargs="+")
    add_kafka(parser)
    parser.set_defaults(ask=ask)


def ask(options: argparse.Namespace) -> None:
    """Raises CommandError."""
    with cluster_of(options) as cluster:
        for group in options.groups:
            try:
                delete_group(cluster, group)
            except RefusedError as error:
                if error.error == ErrorCode.GROUP_ID_NOT_FOUND:
                    raise no_group(group) from error
                why = _WHY.get(ErrorCode(error.error), str(error))
                raise RefusedCommandError(f"group {group!r} stays: {why}") from error
            if not options.json:
                print(f"{shown(group)}: deleted")
    if options.json:
        print_json({"deleted": options.groups})
