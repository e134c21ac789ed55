"""partition.metadata: which topic id the files of a partition directory belong to (KIP-516).

The metadata database is the authority; this file tells whether a directory is a left-over of a
deleted topic of the same name.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode

from kohort.broker.storage.checkpoints.checked_file import read_checked, replace_checked
from kohort.broker.storage.errors import CorruptFileError
from kohort.broker.storage.filesystem import FileSystem

FILE_NAME = "partition.metadata"
_TEXT = "version: 0\ntopic_id: "
_ID_BYTES = 16


def write_topic_id(files: FileSystem, directory: str, topic_id: bytes, *, sync: bool) -> None:
    """Note the id (16 bytes) in a partition's directory. Raises OSError.

    Args:
        sync: it is on the disk when this returns, as it must be where batches are: nothing else in
            the directory says whose they are.
    """
    encoded = urlsafe_b64encode(topic_id).rstrip(b"=").decode()
    path = f"{directory}/{FILE_NAME}"
    content = (_TEXT + encoded).encode()
    replace_checked(files, path, content, sync=sync, sync_sums=files.exists(path))
    if sync:
        files.sync_directory(directory)


def read_topic_id(files: FileSystem, directory: str) -> bytes | None:
    """The id noted in a partition's directory; None if there is none. Raises OSError.

    CorruptFileError if the file is damaged: it then proves nothing and may be rewritten.
    """
    path = f"{directory}/{FILE_NAME}"
    content = read_checked(files, path)
    if content is None:
        return None
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
