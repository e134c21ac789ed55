"""``kohort transactions abort``: end a transaction in one partition, past its coordinator.

For transactions that no coordinator will end. One that is known ends by itself, at the latest when
its time is over, and is refused here unless `--force` says that it is meant.
"""

import argparse

from kohort.admin.transactions import abort_in_partition, held_back
from kohort.cli.errors import NotFoundError, UsageError
from kohort.cli.options import add_kafka, cluster_of
from kohort.cli.transactions.partition import add_partition, no_partition


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_partition(parser)
    parser.add_argument(
        "start_offset",
        metavar="OFFSET",
        type=int,
        help="where the transaction begins, as `kohort transactions why` tells",
    )
    parser.add_argument("--force", action="store_true", help="also one that its coordinator knows")
    add_kafka(parser)
    parser.set_defaults(ask=ask)


def ask(options: argparse.Namespace) -> None:
    """Raises CommandError."""
    with cluster_of(options) as cluster:
        held = held_back(cluster, options.topic, options.partition)
        if held is None:
            raise no_partition(options)
        found = [one for one in held.open if one.current_txn_start_offset == options.start_offset]
        if not found:
            raise NotFoundError(f"no open transaction begins at offset {options.start_offset}")
        transactional_id = held.ids.get(found[0].producer_id)
        if transactional_id is not None and not options.force:
            raise UsageError(
                f"the coordinator knows this transaction, as {transactional_id!r}, and ends it;"
                " --force aborts it in this partition alone, which may tear it"
            )
        abort_in_partition(cluster, options.topic, options.partition, found[0])
    print(
        f"Aborted the transaction of producer {found[0].producer_id} from offset"
        f" {options.start_offset} on."
    )
