"""The rebalance protocol that several assignors have in common."""

from collections.abc import Sequence

from kohort.client.core.errors import ConfigError
from kohort.client.core.group.assignors.assignor import Assignor, RebalanceProtocol


def common_mode(assignors: Sequence[Assignor]) -> RebalanceProtocol:
    """Return the best rebalance protocol that all assignors support (KIP-429).

    Raises:
        ConfigError: they have none in common, or there are no assignors.
    """
    if not assignors:
        raise ConfigError("partition_assignment_strategy is empty; name at least one assignor")
    modes = frozenset(RebalanceProtocol).intersection(
        *(assignor.protocols for assignor in assignors)
    )
    if not modes:
        names = ", ".join(assignor.name for assignor in assignors)
        raise ConfigError(
            f"the assignors {names} have no rebalance protocol in common; remove those that are"
            " only"
            " eager or only cooperative"
        )
    return max(modes)
