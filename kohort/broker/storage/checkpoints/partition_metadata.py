"""partition.metadata: the topic id that the files of a partition directory belong to (KIP-516).

The metadata database is authoritative; this file shows whether a directory is left over from a
deleted topic of the same name.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode

from kohort.broker.storage.checked_file import read_checked, replace_checked
from kohort.broker.storage.errors import CorruptFileError
from kohort.broker.storage.filesystem import FileSystem

FILE_NAME = "partition.metadata"
_TEXT = "version: 0\ntopic_id: "
_ID_BYTES = 16


def write_topic_id(files: FileSystem, directory: str, topic_id: bytes, *, sync: bool) -> None:
    """Write the id (16 bytes) to a partition's directory. Raises OSError.

    Args:
        sync: whether to flush the file to disk, which is necessary if the directory has batches:
            nothing else in it says to which topic they belong.
    """
    encoded = urlsafe_b64encode(topic_id).rstrip(b"=").decode()
    path = f"{directory}/{FILE_NAME}"
    content = (_TEXT + encoded).encode()
    replace_checked(files, path, content, sync=sync, sync_sums=files.exists(path))
    if sync:
        files.sync_directory(directory)


def read_topic_id(files: FileSystem, directory: str) -> bytes | None:
    """Return the id in a partition's directory; None if there is none. Raises OSError.

    Raises CorruptFileError if the file is damaged: the id is then unknown, and may be rewritten.
    """
    path = f"{directory}/{FILE_NAME}"
    content = read_checked(files, path)
    return None if content is None else parse_topic_id(content, path)


def parse_topic_id(content: bytes, path: str) -> bytes:
    """Parse the content of partition.metadata; `path` is for the message of a CorruptFileError."""
    try:
        text = content.decode("ascii").rstrip("\n")
        if not text.startswith(_TEXT):
            raise ValueError(f"it starts with {text[: len(_TEXT)]!r}")
        topic_id = urlsafe_b64decode(text.removeprefix(_TEXT) + "==")
    except ValueError as error:
        raise CorruptFileError(f"{path}: {error}") from None
    if len(topic_id) != _ID_BYTES:
        raise CorruptFileError(f"{path}: a topic id of {len(topic_id)} bytes")
    return topic_id
