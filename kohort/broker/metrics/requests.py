"""Counters of requests, connections and bytes, updated by the network layer and the dispatcher.

Counting a response takes about half a microsecond, and more if it has partitions to iterate over.
The functions that count its error codes are generated for each message class from its schema:
straight-line code that reads all fields named error_code. They run for each response, and a
Metadata response may have ten thousand codes.
"""

from collections.abc import Callable, Collection
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from kohort.broker.metrics.tally import HistogramTally
from kohort.protocol.message import schema_of
from kohort.protocol.schema import MessageSchema

if TYPE_CHECKING:
    from kohort.broker.security.tls_listener import TlsListener
    from kohort.broker.security.users_file import UsersFile

ErrorCounts = dict[int, int]
"""Number of occurrences of each error code; code 0 is not an error."""

Counter = Callable[[object, ErrorCounts], None]

_FIELD = "error_code"


@cache
def error_counter(message: type) -> Counter | None:
    """Return a function that counts a message's errors; None if it has no error codes."""
    lines = _lines(schema_of(message), "m", 1)
    if not lines:
        return None
    names: dict[str, Any] = {}
    source = "\n".join(["def count(m, counts):", *lines])
    exec(compile(source, f"<errors of {message.__name__}>", "exec"), names)  # noqa: S102 - as codecs
    counter: Counter = names["count"]
    return counter


def _lines(schema: MessageSchema, name: str, depth: int) -> list[str]:
    """Generate the source lines that count the error codes in a structure; [] if it has none."""
    indent = "    " * depth
    lines: list[str] = []
    if any(field.name == _FIELD for field in schema.fields):
        lines = [
            f"{indent}code = {name}.{_FIELD}",
            f"{indent}if code:",
            # The code may be an ErrorCode or a plain int, which are equal as keys.
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


DURATION_BOUNDS_S: Final = (0.0005, 0.002, 0.01, 0.05, 0.2, 1.0, 5.0, 30.0, 120.0)
"""Bounds of the buckets; few, because every API has them. The long durations are for requests that
wait: a fetch for records (0.5 s in most clients), a join for the other members (minutes)."""


class RequestMeter:
    """Counts the requests of one API in one version."""

    __slots__ = ("api", "duration", "errors", "version")

    def __init__(self, api: str, version: int) -> None:
        self.api = api
        """Kafka's name of the API, for example Produce or OffsetCommit."""
        self.version = version
        self.duration = HistogramTally(DURATION_BOUNDS_S)
        """Seconds from the complete request to the response, including waits."""
        self.errors: ErrorCounts = {}
        """Errors by code, without 0; a response counts once for each failed partition."""


class EdgeMetrics:
    """Counters of requests and connections. Implements `kohort.broker.network.metrics`."""

    def __init__(self) -> None:
        self._meters: dict[tuple[str, int], RequestMeter] = {}
        self.waiting_count = 0
        """Requests that are being executed and not answered yet."""
        self.rejected: dict[str, int] = {}
        """Requests that ended their connection, by reason."""
        self.denied: dict[tuple[str, str], int] = {}
        """Denied operations, by API and resource type."""
        self.connection_count = 0
        self.opened_count = 0
        self.closed: dict[str, int] = {}
        self.refused: dict[str, int] = {}
        self.certificates: Collection[TlsListener] = ()
        self.users_file: UsersFile | None = None
        self.authentications: dict[tuple[str, str, str], int] = {}
        self.received_bytes = 0
        self.sent_bytes = 0

    def request_meters(self) -> list[RequestMeter]:
        """Return the meters, sorted by API and version."""
        return [meter for _, meter in sorted(self._meters.items())]

    def request_answered(
        self, api: str, version: int, response: object | None, duration_s: float
    ) -> None:
        """Count a response. `response` is None if there is none, or it cannot contain errors."""
        meter = self._meters.get((api, version)) or self._new_meter(api, version)
        meter.duration.observe(duration_s)
        if response is not None:
            message: type = type(response)
            count_errors = error_counter(message)
            if count_errors is not None:
                count_errors(response, meter.errors)

    def request_failed(self, api: str, version: int, error_code: int, duration_s: float) -> None:
        """Count one error for a request that failed as a whole, whatever its response contains."""
        meter = self._meters.get((api, version)) or self._new_meter(api, version)
        meter.duration.observe(duration_s)
        meter.errors[error_code] = meter.errors.get(error_code, 0) + 1

    def request_rejected(self, reason: str) -> None:
        self.rejected[reason] = self.rejected.get(reason, 0) + 1

    def connection_opened(self) -> None:
        self.connection_count += 1
        self.opened_count += 1

    def connection_closed(self, reason: str) -> None:
        self.connection_count -= 1
        self.closed[reason] = self.closed.get(reason, 0) + 1

    def connection_refused(self, reason: str) -> None:
        self.refused[reason] = self.refused.get(reason, 0) + 1

    def authentication(self, listener: str, mechanism: str, result: str) -> None:
        key = listener, mechanism, result
        self.authentications[key] = self.authentications.get(key, 0) + 1

    def _new_meter(self, api: str, version: int) -> RequestMeter:
        meter = self._meters[api, version] = RequestMeter(api, version)
        return meter
