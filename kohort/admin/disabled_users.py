"""What can be asked and changed about disabled users: settings of a Kohort, set at run time.

Kafka has no request of its own for it.
"""

from typing import Final, NamedTuple
from urllib.parse import quote, unquote

from kohort.admin.cluster import Cluster, RefusedError
from kohort.admin.configs import Kind, Operation, Resource, Source, alter, change, described
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.incremental_alter_configs import AlterableConfig

DISABLED: Final = "kohort.users.disabled"
"""The setting that lists users who cannot authenticate."""
DISCONNECTED: Final = "kohort.users.disconnected"
"""The setting that lists those of them whose open connections end, too."""


class Names(NamedTuple):
    """The users that one of the settings lists."""

    items: tuple[str, ...]
    """The names as written in the setting; see `item_of`."""
    broker: str = ""
    """The id of the broker that it is set for, empty for all."""

    def items_of(self, user: str) -> list[str]:
        """The items that mean a user, however they are written."""
        return [item for item in self.items if unquote(item) == user]


def item_of(user: str) -> str:
    """A user's name as an item of the settings: what separates items is percent-encoded."""
    return quote(user, safe="@")


def user_of(item: str) -> str:
    """The user that an item of the settings means."""
    return unquote(item)


def disabled_users(cluster: Cluster) -> frozenset[str]:
    """All users that are disabled; none on a cluster that cannot disable users.

    Raises RefusedError, DisconnectedError.
    """
    listed = _listed(cluster).get(DISABLED)
    return frozenset(map(user_of, listed.items)) if listed is not None else frozenset()


def disable_user(cluster: Cluster, user: str, *, disconnects: bool) -> None:
    """Let a user authenticate no more, and end its open connections where that is wanted.

    Raises as `disabled_users`; RefusedError also where the cluster cannot disable users.
    """
    listed = _listed(cluster)
    if DISABLED not in listed:
        raise RefusedError(
            ErrorCode.INVALID_CONFIG, f"the user {user!r}", f"{DISABLED} is known to Kohort alone"
        )
    wanted = (DISABLED, DISCONNECTED) if disconnects else (DISABLED,)
    changed = {name: (listed[name], item_of(user)) for name in wanted}
    _alter(cluster, user, Operation.APPEND, changed)


def enable_user(cluster: Cluster, user: str) -> bool:
    """Let a user authenticate again; whether it was disabled. Raises as `disabled_users`."""
    listed = _listed(cluster)
    found = {name: names for name, names in listed.items() if names.items_of(user)}
    if not found:
        return False
    changed = {name: (names, ",".join(names.items_of(user))) for name, names in found.items()}
    _alter(cluster, user, Operation.SUBTRACT, changed)
    return DISABLED in found


def _listed(cluster: Cluster) -> dict[str, Names]:
    """What counts now, by setting; nothing on a cluster that does not know them."""
    answer = cluster.metadata([])
    # A broker tells its own settings alone, and clusters name another controller each time.
    broker, connection = str(answer.controller_id), cluster.broker(answer, answer.controller_id)
    configs = described(
        cluster,
        connection or cluster.controller(),
        Resource(Kind.BROKER, broker),
        [DISABLED, DISCONNECTED],
        "the disabled users",
    )
    return {
        one.name: Names(
            tuple(item for item in (one.value or "").split(",") if item),
            # What is set for one broker counts before what is set for all.
            broker if one.config_source == Source.BROKER else "",
        )
        for one in configs
    }


def _alter(
    cluster: Cluster, user: str, operation: Operation, changed: dict[str, tuple[Names, str]]
) -> None:
    """Append to settings or subtract from them, each where it counts; by name, what it lists now
    and the items.
    """
    changes: dict[Resource, list[AlterableConfig]] = {}
    for name, (names, items) in changed.items():
        place = Resource(Kind.BROKER, names.broker)
        changes.setdefault(place, []).append(change(name, operation, items))
    alter(cluster, changes, f"the user {user!r}")
