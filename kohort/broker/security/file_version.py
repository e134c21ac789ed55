"""Detects changed files, and files that all users may read."""

from pathlib import Path
from typing import Final, NamedTuple

_READ_BY_OTHERS: Final = 0o004


class FileVersion(NamedTuple):
    """Values that change whenever a file is written or replaced."""

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


def is_open_to_all(path: Path | str) -> bool:
    """Whether the file exists and every user of this machine may read it. Reads the file system."""
    try:
        return bool(Path(path).stat().st_mode & _READ_BY_OTHERS)
    except OSError:
        return False
