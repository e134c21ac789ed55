"""The answer to a request that failed as a whole, for every api that can say so.

Where a response has an error of its own, that is set and its lists stay empty. Where it has one per
topic, partition or group only, each of those that were asked about gets the error; what an api is
registered with says which list of the response speaks of which list of the request.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kohort.protocol.errors import ErrorCode
from kohort.protocol.framing import API_VERSIONS_KEY
from kohort.protocol.message import RESPONSES, Struct, schema_of
from kohort.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from kohort.protocol.schema import Field, VersionRange

ITSELF: Final = ""
"""In `Mirror.copied`: the request's element itself, where it is not a structure. In
`Mirror.request`: the request as a whole, for a list that gets one element."""


ERROR_FIELD: Final = "error_code"


class NoErrorField(Exception):  # noqa: N818 - not an error of ours: the protocol has no way.
    """This response cannot say that the request failed."""


@dataclass(frozen=True, slots=True)
class Mirror:
    """A list in the response with one element for each element of a list in the request."""

    response: str
    request: str
    """Its name; with a dot, a list in each element of another."""
    copied: Mapping[str, str]
    """Fields of the response's element, and the fields of the request's that they repeat."""
    inner: Mirror | None = None
    """The error is in this list of the element, not in the element."""
    values: Mapping[str, object] = field(default_factory=dict)
    """Other fields of the element that mean "unknown"."""
    error: str = ERROR_FIELD
    """Name of the element's error."""


class OnError:
    """How an api says that a request failed as a whole: by itself, if its response can."""

    __slots__ = ("mirrors", "unknown")

    def __init__(self, *mirrors: Mirror, **unknown: object) -> None:
        """`mirrors` are tried in order, until the version has both lists of one; `unknown` are
        fields of the response that have to say that they mean nothing.
        """
        self.mirrors = mirrors
        self.unknown = unknown


def same(*names: str) -> dict[str, str]:
    """Fields that have the same name in the response and in the request; for `Mirror.copied`."""
    return {name: name for name in names}


BY_NAME_OR_ID: Final = same("name", "topic_id")
"""How topics are named, depending on the version."""


class _Failure(NamedTuple):
    version: int
    code: ErrorCode
    message: str | None


def error_response(
    on_error: OnError,
    request: object,
    version: int,
    code: ErrorCode,
    message: str | None = None,
) -> Struct:
    """The response to `request` that says `code`, with `message` where there is room for it.

    Raises:
        NoErrorField: in this version it cannot be said.
    """
    schema = schema_of(type(request))
    assert schema.key is not None, f"{schema.name} is not a request"
    failure = _Failure(version, code, message)
    response = _blank(RESPONSES[schema.key])
    for name, value in on_error.unknown.items():
        if _in_version(response, name, version):
            setattr(response, name, value)
    if _set_error(response, failure) or _fill_any(on_error, request, response, failure):
        return response
    raise NoErrorField(f"{schema.name} v{version}")


def elements_response(
    on_error: OnError, request: object, version: int, code: ErrorCode
) -> Struct | None:
    """The response that says `code` of everything that was asked about, as if each had failed for
    itself; None where a response says it as a whole only.
    """
    schema = schema_of(type(request))
    assert schema.key is not None, f"{schema.name} is not a request"
    response = _blank(RESPONSES[schema.key])
    filled = _fill_any(on_error, request, response, _Failure(version, code, None))
    return response if filled else None


def _fill_any(on_error: OnError, request: object, response: Struct, failure: _Failure) -> bool:
    """Fill the first list that this version has; False if it has none."""
    for mirror in on_error.mirrors:
        asked = _asked(request, mirror.request, failure.version)
        if asked is not None and _in_version(response, mirror.response, failure.version):
            _fill(mirror, response, asked, failure)
            return True
    return False


def _asked(request: object, path: str, version: int) -> list[object] | None:
    """The list of the request that a mirror speaks of; None if this version has none."""
    if path == ITSELF:
        return [request]
    name, _, inner = path.partition(".")
    if not _in_version(request, name, version):
        return None
    found: list[object] | None = getattr(request, name)
    if found is None or not inner:
        return found
    return [one for outer in found for one in getattr(outer, inner)]


def _fill(mirror: Mirror, parent: Struct, asked: list[object], failure: _Failure) -> None:
    """Put an element that fails into `parent`'s list for each one that was asked about."""
    (declared,) = (f for f in schema_of(type(parent)).fields if f.name == mirror.response)
    assert isinstance(declared.kind, type)
    elements = []
    for one in asked:
        element = _blank(declared.kind)
        for name, value in mirror.values.items():
            setattr(element, name, value)
        for name, source in mirror.copied.items():
            setattr(element, name, one if source == ITSELF else getattr(one, source))
        if mirror.inner is not None:
            _fill(mirror.inner, element, getattr(one, mirror.inner.request), failure)
        else:
            has_error_field = _set_error(element, failure, mirror.error)
            assert has_error_field
        elements.append(element)
    setattr(parent, mirror.response, elements)


def _blank(message: type) -> Struct:
    blank: Struct = message(
        **{declared.name: declared.make_default() for declared in schema_of(message).fields}
    )
    return blank


def _set_error(target: Struct, failure: _Failure, name: str = ERROR_FIELD) -> bool:
    """Put the error into `target`; False if it has no field for it in this version."""
    if not _in_version(target, name, failure.version):
        return False
    setattr(target, name, failure.code)
    room = _in_version(target, "error_message", failure.version)
    if room is not None:
        absent = None if failure.version in room.nullable else ""
        text = absent if failure.message is None else failure.message
        target.error_message = text  # type: ignore[attr-defined]  # As above.
    return True


def _in_version(target: object, name: str, version: int) -> Field | None:
    for declared in schema_of(type(target)).fields:
        if declared.name == name and version in declared.versions:
            return declared
    return None


def unsupported_version(served: VersionRange) -> ApiVersionsResponse:
    """The answer to ApiVersions of a version that is not served, in v0, which every client reads
    and takes as the offer to step down.
    """
    ours = ApiVersion(api_key=API_VERSIONS_KEY, min_version=served.low, max_version=served.high)
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[ours])
