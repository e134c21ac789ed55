"""Splits a long request into parts for its handler, and joins their responses.

A request may have 50,000 elements, and a handler processes all elements of a request in one step.
So it gets a long request in parts with a bounded number of elements. Each part is a valid request,
and other requests are executed between two of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from typing import Any, NamedTuple, TypeVar

from kohort.protocol.message import Struct, schema_of

M = TypeVar("M")


class Lists(NamedTuple):
    """Corresponding lists of request and response: field names from the outermost list to the one
    whose elements are counted, such as `("topics", "partitions")`.
    """

    request: tuple[str, ...]
    response: tuple[str, ...]


def lists(request: str, response: str | None = None) -> Lists:
    """Return the lists with these dotted names; `response` defaults to `request`."""
    return Lists(tuple(request.split(".")), tuple((response or request).split(".")))


def parts_of(request: M, path: tuple[str, ...], elements_max: int) -> Iterator[M]:
    """Yield requests with at most `elements_max` elements each of the innermost list at `path`, in
    the order of the request. An outer element may be split between several parts.
    """
    for part, _ in _parts(request, path, elements_max):
        yield part


def join(response: Any, part: Any, path: tuple[str, ...]) -> None:  # noqa: ANN401
    """Append the lists at `path` of the next part's response to those of `response`."""
    _join_lists(response, part, path)
    if not getattr(response, "error_code", 1):
        response.error_code = part.error_code
        if hasattr(part, "error_message"):
            response.error_message = part.error_message


def _parts(element: Any, path: tuple[str, ...], elements_max: int) -> Iterator[tuple[Any, int]]:  # noqa: ANN401
    """Yield parts of an element with their counts of innermost elements."""
    inner = getattr(element, path[0]) if path else None
    if not inner:
        yield element, 1
        return
    taken: list[Any] = []
    taken_count = 0
    for child in inner:
        # Two pieces of one child are never in the same part, because the first one fills its part.
        for part, count in _parts(child, path[1:], elements_max):
            if taken and taken_count + count > elements_max:
                yield _with(element, path[0], taken), taken_count
                taken, taken_count = [], 0
            taken.append(part)
            taken_count += count
    yield _with(element, path[0], taken), taken_count


def _with(element: Any, name: str, value: list[Any]) -> Any:  # noqa: ANN401
    made = copy(element)
    setattr(made, name, value)
    return made


def _join_lists(element: Any, part: Any, path: tuple[str, ...]) -> None:  # noqa: ANN401
    name, *rest = path
    elements, more = getattr(element, name), getattr(part, name)
    if not elements:
        setattr(element, name, more)
    elif more:
        if rest and _is_same(elements[-1], more[0], rest[0]):
            _join_lists(elements[-1], more[0], tuple(rest))
            more = more[1:]
        elements += more


def _is_same(element: Struct, other: Struct, inner: str) -> bool:
    """Whether two elements differ only in their inner list, because one element was split."""
    return all(
        getattr(element, field.name) == getattr(other, field.name)
        for field in schema_of(type(element)).fields
        if field.name != inner
    )
