"""Counts the error codes in a response, in all fields named error_code.

The functions are generated per message class from its schema, as straight-line code, because
each response passes through one, and a Metadata response may have ten thousand codes.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

from kohort.protocol.message import schema_of
from kohort.protocol.schema import MessageSchema

ErrorCounts = dict[int, int]
"""Number of occurrences of each error code; code 0 is not an error."""

Counter = Callable[[object, ErrorCounts], None]

_FIELD = "error_code"


@cache
def error_counter(message: type) -> Counter | None:
    """Return a function that adds the errors in a message to counts; None if its class has no error
    codes.
    """
    lines = _lines(schema_of(message), "m", 1)
    if not lines:
        return None
    names: dict[str, Any] = {}
    source = "\n".join(["def count(m, counts):", *lines])
    exec(compile(source, f"<errors of {message.__name__}>", "exec"), names)  # noqa: S102 - as codecs
    counter: Counter = names["count"]
    return counter


def _lines(schema: MessageSchema, name: str, depth: int) -> list[str]:
    """Generate the lines that count the codes in the structure with that name; none if it has no
    error codes.
    """
    indent = "    " * depth
    lines: list[str] = []
    if any(field.name == _FIELD for field in schema.fields):
        lines = [
            f"{indent}code = {name}.{_FIELD}",
            f"{indent}if code:",
            # An ErrorCode or a plain int: equal, and the same key.
            f"{indent}    counts[code] = counts.get(code, 0) + 1",
        ]
    for field in schema.fields:
        child = f"m{depth}"
        below = (
            _lines(schema_of(field.kind), child, depth + 1) if isinstance(field.kind, type) else []
        )
        if not below:
            continue
        if field.is_array:
            lines.append(f"{indent}for {child} in {name}.{field.name} or ():")
        else:
            lines += [f"{indent}{child} = {name}.{field.name}", f"{indent}if {child} is not None:"]
        lines += below
    return lines
