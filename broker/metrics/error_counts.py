"""Finds the error codes in a response, wherever its declaration has them.

The functions are put together once per message class from its schema, so that a heartbeat's answer
costs one attribute and a fetch's one walk over its partitions.
"""

from collections.abc import Callable
from functools import cache

from protocol.message import schema_of
from protocol.schema import MessageSchema

ErrorCounts = dict[int, int]
"""How often each error code occurred; code 0 is not an error."""

Counter = Callable[[object, ErrorCounts], None]

_FIELD = "error_code"


@cache
def error_counter(message: type) -> Counter | None:
    """A function that adds the errors in a message to counts; None if it has no place for any."""
    schema = schema_of(message)
    has_code = any(field.name == _FIELD for field in schema.fields)
    below = _counters_below(schema)
    if not below:
        return _count_here if has_code else None

    def count(value: object, counts: ErrorCounts) -> None:
        if has_code:
            _count_here(value, counts)
        for name, is_array, counter in below:
            child = getattr(value, name)
            if child is None:
                continue
            if is_array:
                for one in child:
                    counter(one, counts)
            else:
                counter(child, counts)

    return count


def _counters_below(schema: MessageSchema) -> list[tuple[str, bool, Counter]]:
    """(field, whether it is an array, counter) of the nested structures that have error codes."""
    found = []
    for field in schema.fields:
        counter = error_counter(field.kind) if isinstance(field.kind, type) else None
        if counter is not None:
            found.append((field.name, field.is_array, counter))
    return found


def _count_here(value: object, counts: ErrorCounts) -> None:
    code = getattr(value, _FIELD)
    if code:
        # An ErrorCode or a plain int: equal, and the same key.
        counts[code] = counts.get(code, 0) + 1
