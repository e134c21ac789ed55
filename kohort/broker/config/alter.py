"""Applies AlterConfigs and IncrementalAlterConfigs to the configs of a resource (KIP-339).

Pure: takes the current configs and the operations, returns the new configs or raises KafkaError.
The caller has to validate the result as a whole.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple

from kohort.broker.config.settings import ConfigType, Setting
from kohort.protocol.errors import ErrorCode, KafkaError


class Operation(IntEnum):
    """Operation on a config, with the protocol's numbers."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Change(NamedTuple):
    name: str
    operation: int
    value: str | None

    def __repr__(self) -> str:
        # The value may be a secret.
        return f"Change({self.name!r}, {self.operation})"


def replaced(configs: Iterable[tuple[str, str | None]]) -> dict[str, str]:
    """Return the configs after AlterConfigs, which replaces all of them. Raises KafkaError."""
    return altered({}, [Change(name, Operation.SET, value) for name, value in configs], {}, str)


def altered(
    current: Mapping[str, str],
    changes: list[Change],
    settings: Mapping[str, Setting],
    default: Callable[[str], str],
) -> dict[str, str]:
    """Return the configs after the changes.

    ``default`` returns the text of a list config that is not set. Raises KafkaError with
    INVALID_REQUEST, or INVALID_CONFIG for an operation that the config's type does not support.
    """
    if len({change.name for change in changes}) < len(changes):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    result = dict(current)
    for change in changes:
        if change.operation == Operation.DELETE:
            result.pop(change.name, None)
            continue
        if change.value is None:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"Null value not supported for : {change.name}"
            )
        match change.operation:
            case Operation.SET:
                result[change.name] = change.value
            case Operation.APPEND | Operation.SUBTRACT:
                _check_list(change, settings)
                before = result.get(change.name)
                items = _items(default(change.name) if before is None else before)
                result[change.name] = ",".join(_combined(items, _items(change.value), change))
            case unknown:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown config operation {unknown}")
    return result


def _combined(before: list[str], items: list[str], change: Change) -> list[str]:
    if change.operation == Operation.APPEND:
        return [*before, *(item for item in items if item not in before)]
    return [item for item in before if item not in items]


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


def _check_list(change: Change, settings: Mapping[str, Setting]) -> None:
    known = settings.get(change.name)
    if known is None or known.type is not ConfigType.LIST:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"Can't {Operation(change.operation).name} to key {change.name} because its type is"
            " not LIST.",
        )
