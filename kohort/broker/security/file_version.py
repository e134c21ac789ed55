"""Whether a file has changed since it was read."""

from pathlib import Path
from typing import NamedTuple


class FileVersion(NamedTuple):
    """Values that change with a file, whether it is written in place or replaced."""

    modified_ns: int
    inode: int
    size_bytes: int


def version_of(path: Path | str) -> FileVersion | None:
    """Return the version of the file at a path; None if there is none. Reads the file system."""
    try:
        status = Path(path).stat()
    except OSError:
        return None
    return FileVersion(status.st_mtime_ns, status.st_ino, status.st_size)
