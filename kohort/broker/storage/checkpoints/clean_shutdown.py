"""The file that marks a clean shutdown; Kafka uses the same name.

With the marker, logs are opened without reading their content; without it, everything beyond the
recovery points is verified. Only the existence of the file counts.
"""

from kohort.broker.storage.checked_file import replace_file
from kohort.broker.storage.filesystem import FileSystem

FILE_NAME = ".kafka_cleanshutdown"
_CONTENT = b'{"version":0,"brokerEpoch":-1}'


def mark_clean_shutdown(files: FileSystem, directory: str) -> None:
    """Create the marker. Call this once all logs are closed, if none has failed. Raises OSError."""
    replace_file(files, f"{directory}/{FILE_NAME}", _CONTENT)
    files.sync_directory(directory)


def take_clean_shutdown_mark(files: FileSystem, directory: str) -> bool:
    """Remove the marker durably, and return whether it existed. Raises OSError.

    Call this once, before any log is opened: a later crash must not look like a clean shutdown.
    """
    path = f"{directory}/{FILE_NAME}"
    if not files.exists(path):
        return False
    files.remove(path)
    files.sync_directory(directory)
    return True
