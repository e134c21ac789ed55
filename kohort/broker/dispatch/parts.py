"""Splits a long request into parts for its handler, and joins their responses.

A request may have 50,000 elements, and a handler processes all elements of a request without a
pause. So the handler gets a long request in parts with a bounded number of elements. Each part is a
valid request, and other requests are executed between two parts.
"""

from collections.abc import Iterator
from copy import copy
from typing import Any, NamedTuple, TypeVar

M = TypeVar("M")


class Lists(NamedTuple):
    """The list to split in a request, and the list to join in its response, as paths of field
    names: one name, or two to count the elements of an inner list (`("topics", "partitions")`).
    """

    request: tuple[str, ...]
    response: tuple[str, ...]


def lists(request: str, response: str | None = None) -> Lists:
    """Parse dotted paths such as "topics.partitions"; `response` defaults to `request`."""
    return Lists(tuple(request.split(".")), tuple((response or request).split(".")))


def parts_of(request: M, path: tuple[str, ...], elements_max: int) -> Iterator[tuple[M, bool]]:
    """Split a request into parts with at most `elements_max` elements in the innermost lists at
    `path`. With each part, yield whether its first outer element (such as a topic) continues the
    last outer element of the previous part.
    """
    for part, _, continues in _parts(request, path, elements_max):
        yield part, continues


def join(
    response: Any,  # noqa: ANN401
    part: Any,  # noqa: ANN401
    path: tuple[str, ...],
    *,
    continues: bool,
) -> None:
    """Append the lists at `path` of the next part's response to those of `response`.

    Args:
        continues: as yielded by `parts_of`.
    """
    elements, more = getattr(response, path[0]), getattr(part, path[0])
    if not elements:
        setattr(response, path[0], more)
    elif more:
        if continues:
            join(elements[-1], more[0], path[1:], continues=False)
            more = more[1:]
        elements += more
    if not getattr(response, "error_code", 1):
        response.error_code = part.error_code
        if hasattr(part, "error_message"):
            response.error_message = part.error_message


def _parts(
    element: Any,  # noqa: ANN401
    path: tuple[str, ...],
    elements_max: int,
) -> Iterator[tuple[Any, int, bool]]:
    """Like `parts_of`, for an element of any level; also yields the number of innermost elements
    in each part, before the flag.
    """
    inner = getattr(element, path[0]) if path else None
    if not inner:
        yield element, 1, False
        return
    taken: list[Any] = []
    taken_count = 0
    continues = False
    for child in inner:
        is_rest = False
        # `taken` never has two parts of one child: they exceed `elements_max` together.
        for part, count, _ in _parts(child, path[1:], elements_max):
            if taken and taken_count + count > elements_max:
                yield _with(element, path[0], taken), taken_count, continues
                taken, taken_count, continues = [], 0, is_rest
            taken.append(part)
            taken_count += count
            is_rest = True
    yield _with(element, path[0], taken), taken_count, continues


def _with(element: Any, name: str, value: list[Any]) -> Any:  # noqa: ANN401
    made = copy(element)
    setattr(made, name, value)
    return made
