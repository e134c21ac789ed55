"""Disables and enables users of a Kohort cluster, through two dynamic broker configs.

Kafka has no request for it. The configs are lists of user names, percent-encoded, because names may
contain commas. A value of the broker overrides the cluster-wide default, so changes have to be made
to the value in force.
"""

from typing import Final, NamedTuple
from urllib.parse import quote, unquote

from kohort.admin.cluster import Cluster, RefusedError
from kohort.admin.configs import Kind, Operation, Resource, Source, alter, change, described
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.incremental_alter_configs import AlterableConfig

DISABLED: Final = "kohort.users.disabled"
"""Config with the users that cannot authenticate."""
DISCONNECTED: Final = "kohort.users.disconnected"
"""Config with the disabled users whose open connections are closed too."""


class Names(NamedTuple):
    """The effective value of one of the configs."""

    items: tuple[str, ...]
    """The names as in the config; see `item_of`."""
    broker: str = ""
    """Id of the broker that has the value, empty for the cluster-wide default."""

    def items_of(self, user: str) -> list[str]:
        """The items for a user, in whichever encoding."""
        return [item for item in self.items if unquote(item) == user]


def item_of(user: str) -> str:
    """Percent-encode a user name as an item of the configs."""
    return quote(user, safe="@")


def user_of(item: str) -> str:
    """Decode an item of the configs."""
    return unquote(item)


def disabled_users(cluster: Cluster) -> frozenset[str]:
    """All disabled users; none if unsupported. Raises RefusedError, DisconnectedError."""
    listed = _listed(cluster).get(DISABLED)
    return frozenset(map(user_of, listed.items)) if listed is not None else frozenset()


def disable_user(cluster: Cluster, user: str, *, disconnects: bool) -> None:
    """Disable a user; `disconnects` also closes its connections. Raises as `disabled_users`."""
    listed = _listed(cluster)
    if DISABLED not in listed:
        raise RefusedError(
            ErrorCode.INVALID_CONFIG, f"the user {user!r}", f"only Kohort has {DISABLED}"
        )
    wanted = (DISABLED, DISCONNECTED) if disconnects else (DISABLED,)
    changed = {name: (listed[name], item_of(user)) for name in wanted}
    _alter(cluster, user, Operation.APPEND, changed)


def enable_user(cluster: Cluster, user: str) -> bool:
    """Enable a user; returns whether it was disabled. Raises as `disabled_users`."""
    listed = _listed(cluster)
    changed = {
        name: (names, ",".join(names.items_of(user)))
        for name, names in listed.items()
        if names.items_of(user)
    }
    if changed:
        _alter(cluster, user, Operation.SUBTRACT, changed)
    return DISABLED in changed


def _listed(cluster: Cluster) -> dict[str, Names]:
    """The effective values, by config; empty if the cluster does not have the configs."""
    answer = cluster.metadata([])
    # A broker describes only its own configs, and the controller can change between requests.
    broker, connection = str(answer.controller_id), cluster.broker(answer, answer.controller_id)
    configs = described(
        cluster,
        connection or cluster.controller(),
        Resource(Kind.BROKER, broker),
        [DISABLED, DISCONNECTED],
        "the disabled users",
    )
    return {
        config.name: Names(
            tuple(item for item in (config.value or "").split(",") if item),
            broker if config.config_source == Source.BROKER else "",
        )
        for config in configs
    }


def _alter(
    cluster: Cluster, user: str, operation: Operation, changed: dict[str, tuple[Names, str]]
) -> None:
    """Append to configs or subtract from them; `changed` has the effective value and the items."""
    changes: dict[Resource, list[AlterableConfig]] = {}
    for name, (names, items) in changed.items():
        resource = Resource(Kind.BROKER, names.broker)
        changes.setdefault(resource, []).append(change(name, operation, items))
    alter(cluster, changes, f"the user {user!r}")
