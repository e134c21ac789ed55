"""Explains Spark's exceptions to the user who started the job."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from deltalake.exceptions import CommitFailedError, DeltaError
from py4j.protocol import Py4JError, Py4JJavaError
from pyarrow import ArrowException
from pyspark.errors import PySparkException

from kohort.insight.errors import ReportedError, UsageError
from kohort.pipeline.errors import ConflictError, RegistryError, UnavailableError

_TEXT_MAX: Final = 600
"""Maximum length of Spark's own message, shown if no better one is known."""

_CAUSES_MAX: Final = 20

_FULL_DISK: Final = ("No space left on device", "Disk quota exceeded")
_NO_ANSWER: Final = ("errors.TimeoutException", "Timed out waiting for a node assignment")
_NOT_ALLOWED: Final = ("Permission denied", "AccessDeniedException", "Read-only file system")
_CONFLICT: Final = ("DELTA_CONCURRENT_", "DELTA_METADATA_CHANGED", "DELTA_PROTOCOL_CHANGED")
_BAD_NAME: Final = "InvalidTopicException"
_CAUSED: Final = "Caused by: "
_OF_WORKER: Final = "Traceback (most recent call last)"
_RAISED: Final = re.compile(
    r"^(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Exit|Interrupt)\b: .+$", re.MULTILINE
)
_RECORD: Final = re.compile(r"partition \d+ offset \d+")
_REGISTRY: Final = f"{RegistryError.__module__}.{RegistryError.__qualname__}"
_OWN: Final[dict[str, type[ReportedError]]] = {
    f"{kind.__module__}.{kind.__qualname__}": reported
    for kind, reported in (
        (RegistryError, ReportedError),
        *((kind, kind) for kind in (ReportedError, UsageError, ConflictError, UnavailableError)),
    )
}
"""The error that the driver raises for each of Kohort's own exceptions, by the exception's name in
a worker's traceback. Their texts are for the user."""
_NOT_A_LAKE: Final = (
    "DELTA_TABLE_NOT_FOUND",
    "is not a Delta table",
    "DELTA_PATH_DOES_NOT_EXIST",
    "Incompatible format detected",
    "DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION",
    "ParentNotDirectoryException",
    "Not a directory",
    "exists and is not a directory",
)


@contextmanager
def explained(what: str) -> Iterator[None]:
    """Convert exceptions of Spark and its libraries to a ReportedError about `what`."""
    try:
        yield
    except (PySparkException, Py4JError, ArrowException, DeltaError, OSError) as error:
        raise explain(what, error) from error


def explain(what: str, error: Exception) -> ReportedError:
    text = _error_text(error)
    return _own(what, text) or _explained(what, text, error)


def _own(what: str, text: str) -> ReportedError | None:
    """Return Kohort's own error that a Python worker raised; None if it raised another error."""
    name, _, message = _raised(text).partition(": ")
    if name in _OWN:
        return _OWN[name](message if name != _REGISTRY else f"{what}: {message}")
    return None


def _explained(what: str, text: str, error: Exception) -> ReportedError:
    if any(sign in text for sign in _FULL_DISK):
        return UnavailableError(
            f"{what}: the disk is full. Partial writes are ignored; free some "
            "space and run the job again."
        )
    if isinstance(error, CommitFailedError) or any(sign in text for sign in _CONFLICT):
        return ConflictError(
            f"{what}: another run changed it at the same time; nothing was written"
        )
    if any(sign in text for sign in _NO_ANSWER):
        return UnavailableError(f"{what}: no broker answered in time ({_first_line(text)})")
    if any(sign in text for sign in _NOT_ALLOWED):
        return UnavailableError(f"{what}: permission denied ({_first_line(text)})")
    if any(sign in text for sign in _NOT_A_LAKE):
        return ReportedError(
            f"{what}: the directory contains something other than a table ({_first_line(text)}). "
            "Is that directory a lake of this pipeline?"
        )
    return ReportedError(f"{what}: {_reason(text)}")


def causes(error: BaseException | None) -> Iterator[str]:
    """Yield the texts of an error and its causes, in Python and Java, the outermost first."""
    for _ in range(_CAUSES_MAX):
        if error is None:
            return
        yield _error_text(error)
        origin = getattr(error, "_origin", None)
        if origin is not None:
            yield from _java_causes(origin)
        error = error.__cause__ or error.__context__


def _error_text(error: BaseException) -> str:
    """Return the error's text; for an error in Java, the texts of its causes, outermost first,
    without py4j's "An error occurred while calling".
    """
    if not isinstance(error, Py4JJavaError):
        is_of_spark = isinstance(error, (PySparkException, Py4JError))
        return str(error) if is_of_spark else f"{type(error).__name__}: {error}"
    return "\n".join(_java_causes(error.java_exception))


def _java_causes(cause: Any) -> Iterator[str]:  # noqa: ANN401 - py4j's view of a Throwable.
    for number in range(_CAUSES_MAX):
        if cause is None:
            return
        yield f"{_CAUSED if number else ''}{cause.getClass().getSimpleName()}: {cause.getMessage()}"
        cause = cause.getCause()


def _raised(text: str) -> str:
    """Return the exception at the end of a Python worker's traceback, or an empty text."""
    # A Java stack trace follows, so the exception is not on the last line.
    raised = _RAISED.findall(text) if _OF_WORKER in text else []
    return raised[-1].strip()[:_TEXT_MAX] if raised else ""


def _first_line(text: str) -> str:
    line = next((line.strip() for line in text.splitlines() if line.strip()), "no reason given")
    return line[:_TEXT_MAX]


def _reason(text: str) -> str:
    """Summarize an error: its first line ("Task failed while writing rows") and its cause."""
    if _BAD_NAME in text:
        return "invalid topic name"
    if raised := _raised(text):
        return f"a Python worker raised {raised}"
    lines = (line.strip() for line in text.splitlines())
    causes = [line.removeprefix(_CAUSED) for line in lines if line.startswith(_CAUSED)]
    # A cause that names the record is more useful than the innermost one.
    cause = next(filter(_RECORD.search, causes), causes[-1] if causes else "")
    return _first_line(text) + (f"; caused by {cause[:_TEXT_MAX]}" if cause else "")
