"""How those who are limited are written on the command line of `kohort quotas`."""

import argparse

from kohort.admin.quotas import Parts
from kohort.cli.errors import UsageError
from kohort.cli.options import add_kafka


def add_entity(parser: argparse.ArgumentParser) -> None:
    """Add the options for the entity of a quota and for the broker's address."""
    parser.add_argument("--user", metavar="NAME", help="a user (without the type)")
    parser.add_argument("--client-id", metavar="ID")
    parser.add_argument("--default-user", action="store_true", help="users without their own")
    parser.add_argument(
        "--default-client-id", action="store_true", help="client ids without their own"
    )
    parser.add_argument("--ip", metavar="ADDRESS", help="an address that clients come from")
    parser.add_argument("--default-ip", action="store_true", help="addresses without their own")
    add_kafka(parser)


def entity_of(options: argparse.Namespace) -> Parts:
    """The entity that the options name. Raises UsageError."""
    parts: list[tuple[str, str | None]] = []
    for kind, name, is_default in (
        ("user", options.user, options.default_user),
        ("client-id", options.client_id, options.default_client_id),
        ("ip", options.ip, options.default_ip),
    ):
        if name is not None and is_default:
            raise UsageError(f"--{kind} and --default-{kind} are two different things")
        if kind == "user" and (name or "").startswith("User:"):
            raise UsageError("--user is the name alone, without User:")
        if name is not None or is_default:
            parts.append((kind, name))
    if not parts:
        raise UsageError("say for whom, by --user, --client-id, --ip or their defaults")
    return tuple(parts)


def shown_entity(entity: Parts) -> str:
    """The text of an entity for people: ``user alice, client-id <default>``."""
    return ", ".join(f"{kind} {'<default>' if name is None else name}" for kind, name in entity)
