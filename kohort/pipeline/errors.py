"""Errors that end a job; :mod:`kohort.insight.errors` has the tree."""

from kohort.insight.errors import ReportedError


class ConflictError(ReportedError):
    """Another run changed the table; nothing was written, and a retry helps."""


class DataLossError(ReportedError):
    """Records were deleted before they were read; the text names topic, partition and offsets."""


class UnavailableError(ReportedError):
    """A broker, Java or a disk that the job needs is missing or does not answer."""

    exit_code = 3


class RegistryError(Exception):
    """The schema registry does not answer or its answer is invalid: no value can be decoded.

    Raised on executors, which cannot end a job; its text reaches the user in Spark's exception.
    """
