"""Errors that end a job; :mod:`kohort.insight.errors` shows the tree."""

from kohort.insight.errors import ReportedError


class ConflictError(ReportedError):
    """Another run changed the table; nothing was written, and a retry may succeed."""


class DataLossError(ReportedError):
    """Records were deleted before they were read; the message has topic, partition and offsets."""


class UnavailableError(ReportedError):
    """A broker, Java or a disk that the job needs is unavailable."""

    exit_code = 3


class RegistryError(Exception):
    """The schema registry is unavailable or its response is invalid: no value can be decoded.

    Raised on executors, which cannot end a job; the user sees its text in Spark's exception.
    """
