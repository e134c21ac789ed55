"""How a job ends that could not do what it was asked.

::

    PipelineError              exit code 1
    |-- ConflictError          1: another run changes the same table
    |-- DataLossError          1: the topic no longer has what is still to be read
    |-- UsageError             2: the command line cannot be meant
    `-- UnavailableError       3: a broker, Java, a disk: something outside is missing
"""

from typing import ClassVar


class PipelineError(Exception):
    """The text is for the user: what is wrong, and what to do."""

    exit_code: ClassVar[int] = 1


class ConflictError(PipelineError):
    """The table has changed meanwhile; nothing was written, and to do it again helps."""


class DataLossError(PipelineError):
    """Records are gone that were still to be read; the text names topic, partition and offsets."""


class UsageError(PipelineError):
    """The command line cannot be meant."""

    exit_code = 2


class UnavailableError(PipelineError):
    """Something that the job needs does not answer, or is not there."""

    exit_code = 3


class RegistryError(Exception):
    """The registry does not answer, or not as is needed: nothing can be said of any value.

    Raised on executors, where no job can end; what it says reaches the user by Spark's exception.
    """
