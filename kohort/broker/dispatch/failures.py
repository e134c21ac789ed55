"""Error responses to requests that failed as a whole, for every API that supports them.

If a response has a top-level error code, the code is set and the lists stay empty. If the response
has only error codes per topic, partition or group, each requested element gets the error; the API's
registration says which list of the response corresponds to which list of the request.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from kohort.groups.steps import Steps, at_once
from kohort.protocol.errors import ErrorCode
from kohort.protocol.framing import API_VERSIONS_KEY
from kohort.protocol.message import RESPONSES, Struct, schema_of
from kohort.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from kohort.protocol.schema import Field, VersionRange

ITSELF: Final = ""
"""As a field's name in `ErrorTemplate.copied`: the whole requested element, such as a group id.
As a list's name in `ErrorTemplate.request`: the request itself, as the only element."""


ERROR_FIELD: Final = "error_code"


class NoErrorField(Exception):  # noqa: N818 - not an internal error: the protocol has no field.
    """The response has no field for an error of the whole request."""


class ErrorTemplate(NamedTuple):
    """Describes an error response: its list `response` gets one element for each element of the
    request's list `request`.
    """

    response: str
    request: str
    """Name of the list in the request. "topics.partitions" joins the lists `partitions` of all
    elements of `topics`."""
    copied: Mapping[str, str]
    """The response element's fields, mapped to the requested element's fields that they copy."""
    inner: "ErrorTemplate | None" = None
    """The nested list whose elements get the error; None if this list's elements get it."""
    values: Mapping[str, object] = {}
    """Other fields of the element, with values that mean "unknown"."""
    error: str = ERROR_FIELD


def elements(
    response: str,
    request: str,
    *copied: Mapping[str, str],
    error: str = ERROR_FIELD,
    **values: object,
) -> ErrorTemplate:
    """Return the template of nested lists in the response, one for each list in the request.

    Args:
        response: names of lists, outermost first; the elements of the innermost have the error.
        request: the corresponding lists.
        copied: for each list of the response, see `ErrorTemplate.copied`.
        error: the name of the field for the error.
        values: other fields of the innermost elements, with values that mean "unknown".
    """
    *outer, innermost = response.split(".")
    *sources, source = request.rsplit(".", len(outer))
    template = ErrorTemplate(innermost, source, copied[-1], None, values, error)
    for name, source, fields in zip(*map(reversed, (outer, sources, copied[:-1])), strict=True):
        template = ErrorTemplate(name, source, fields, template)
    return template


def per_partition(
    topic: Mapping[str, str],
    partition: Mapping[str, str],
    *,
    requested: str = "partitions",
    **values: object,
) -> ErrorTemplate:
    """Return the template of the list "topics.partitions", for a request with the same lists."""
    partitions = ErrorTemplate("partitions", requested, partition, values=values)
    return ErrorTemplate("topics", "topics", topic, partitions)


class OnError:
    """How an API reports that a request failed as a whole; by default in a top-level field."""

    __slots__ = ("templates", "unknown")

    def __init__(self, *templates: ErrorTemplate, **unknown: object) -> None:
        """The first of `templates` whose lists exist in the request's version is used; `unknown`
        are fields of the response with values that mean "unknown".
        """
        self.templates = templates
        self.unknown = unknown


def same(*names: str) -> dict[str, str]:
    """Return an `ErrorTemplate.copied` for fields with the same name in response and request."""
    return {name: name for name in names}


BY_NAME_OR_ID: Final = same("name", "topic_id")
"""`ErrorTemplate.copied` for topics, which have a name or an id, depending on the version."""


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
    """Return the response to `request` with error `code`, and `message` if there is a field for it.

    Raises:
        NoErrorField: this version has no field for the error.
    """
    return at_once(error_steps(on_error, request, version, code, message))


def error_steps(
    on_error: OnError,
    request: object,
    version: int,
    code: ErrorCode,
    message: str | None = None,
) -> Steps[Struct]:
    """Do what `error_response` does, with a step for each element of the request."""
    schema = schema_of(type(request))
    assert schema.key is not None, f"{schema.name} is not a request"
    failure = _Failure(version, code, message)
    response = _without_results(on_error, request, version)
    if _set_error(response, failure):
        return response
    if (yield from _fill_any(on_error, request, response, failure)):
        return response
    raise NoErrorField(f"{schema.name} v{version}")


def refusal(on_error: OnError, request: object, version: int, code: ErrorCode) -> Struct:
    """Return the error response to a request sent before authentication; if the response has no
    field for `code`, as for a Metadata request of all topics, return an empty response.
    """
    try:
        return error_response(on_error, request, version, code)
    except NoErrorField:
        return _without_results(on_error, request, version)


def elements_response(
    on_error: OnError, request: object, version: int, code: ErrorCode
) -> Struct | None:
    """Return the response with `code` for each requested element; None if no template applies to
    this version.
    """
    schema = schema_of(type(request))
    assert schema.key is not None, f"{schema.name} is not a request"
    response = _blank(RESPONSES[schema.key])
    filled = at_once(_fill_any(on_error, request, response, _Failure(version, code, None)))
    return response if filled else None


def _without_results(on_error: OnError, request: object, version: int) -> Struct:
    """Return a response without results; the other fields have values that mean "unknown"."""
    key = schema_of(type(request)).key
    assert key is not None
    response = _blank(RESPONSES[key])
    for name, value in on_error.unknown.items():
        if _in_version(response, name, version):
            setattr(response, name, value)
    return response


def _fill_any(
    on_error: OnError, request: object, response: Struct, failure: _Failure
) -> Steps[bool]:
    """Give each requested element the error, using the first template whose lists exist in this
    version; return False if there is no such template.
    """
    for template in on_error.templates:
        requested = _requested_elements(request, template.request, failure.version)
        if requested is not None and _in_version(response, template.response, failure.version):
            yield from _fill(template, response, requested, failure)
            return True
    return False


def _requested_elements(request: object, path: str, version: int) -> list[object] | None:
    """Return the list at a dotted path in the request; None if this version has no such list."""
    if path == ITSELF:
        return [request]
    name, _, inner = path.partition(".")
    if not _in_version(request, name, version):
        return None
    elements: list[object] | None = getattr(request, name)
    if elements is None or not inner:
        return elements
    return [inner_element for element in elements for inner_element in getattr(element, inner)]


def _fill(
    template: ErrorTemplate, parent: Struct, requested_elements: list[object], failure: _Failure
) -> Steps[None]:
    """Add an element with the error to `parent`'s list for each requested element."""
    (declared,) = (f for f in schema_of(type(parent)).fields if f.name == template.response)
    assert isinstance(declared.kind, type)
    elements = []
    for requested in requested_elements:
        element = _blank(declared.kind)
        for name, value in template.values.items():
            setattr(element, name, value)
        for name, source in template.copied.items():
            setattr(element, name, requested if source == ITSELF else getattr(requested, source))
        if template.inner is not None:
            yield from _fill(
                template.inner, element, getattr(requested, template.inner.request), failure
            )
        else:
            has_error_field = _set_error(element, failure, template.error)
            assert has_error_field
        elements.append(element)
        yield
    setattr(parent, template.response, elements)


def _blank(message: type) -> Struct:
    blank: Struct = message(
        **{declared.name: declared.make_default() for declared in schema_of(message).fields}
    )
    return blank


def _set_error(target: Struct, failure: _Failure, name: str = ERROR_FIELD) -> bool:
    """Set the error in `target`; return False if `target` has no field for it in this version."""
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
    """Return the response to an unsupported version of ApiVersions: v0, which all clients read."""
    ours = ApiVersion(api_key=API_VERSIONS_KEY, min_version=served.low, max_version=served.high)
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[ours])
