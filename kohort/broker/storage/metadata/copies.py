"""Chooses one of the two copies of the metadata database at the start, and repairs the other.

A copy is sound, missing, damaged, or unreadable because the disk fails. The sound one with more
changes provides the content, and the other copy is rebuilt from it, or removed if that fails: a
later start could mistake an outdated file for the newer copy. So with a full disk the broker starts
with one copy.

If neither is sound, the cause decides. Two damaged files are salvaged row by row, and the caller's
`Rebuild` completes the content. A failing disk is not damage, and is reported as such: the files
may be sound, and replacing them would lose them.
"""

import logging
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from kohort.broker.storage.errors import StorageError
from kohort.broker.storage.metadata.database import (
    CHANGES,
    Content,
    DamagedError,
    MetadataDatabase,
    MetadataError,
    TopicRecord,
    UnreadableError,
    put_property,
    salvage,
)


class Rebuild(Protocol):
    """Creates the content if neither database is sound. May raise OSError."""

    def __call__(self, salvaged: Content, *, was_damaged: bool) -> Content:
        """Build the content from the data salvaged from the two databases. If neither exists,
        `salvaged` is empty and `was_damaged` false.
        """
        ...


DAMAGED_SUFFIX: Final = ".damaged"
_SUFFIXES: Final = ("", "-wal", "-shm")

logger = logging.getLogger(__name__)


class _Copy(NamedTuple):
    path: Path
    database: MetadataDatabase | None = None
    content: Content | None = None
    problem: DamagedError | UnreadableError | None = None
    """Why there is no content; None also if the file is missing."""

    @property
    def changes(self) -> int:
        return -1 if self.content is None else self.content.changes


def open_copies(
    path: Path, mirror_path: Path, rebuild: Rebuild | None
) -> tuple[MetadataDatabase, MetadataDatabase | None, Content]:
    """Return the sound databases and their content. Raises MetadataError or StorageError."""
    first = _examined(path)
    second = _examined(mirror_path)
    for problem in (first.problem, second.problem):
        if problem is not None:
            logger.error("%s", problem)
    best, other = (first, second) if first.changes >= second.changes else (second, first)
    if best.changes <= 0:
        return _started_over(first, second, rebuild)
    assert best.database is not None
    assert best.content is not None
    if other.content == best.content:
        return best.database, other.database, best.content
    if best is second or other.problem is not None:
        logger.error("%s is restored from %s", other.path, best.path)
    return best.database, _replaced(other, best.database), best.content


def _examined(path: Path) -> _Copy:
    """Open a database and read its content, or determine the damage. Raises MetadataError or
    StorageError.
    """
    if not path.exists():
        return _Copy(path)
    database = None
    try:
        database = MetadataDatabase(path)
        return _Copy(path, database, database.read())
    except (DamagedError, UnreadableError) as problem:
        if database is not None:
            database.close()
        return _Copy(path, problem=problem)
    except BaseException:
        if database is not None:
            database.close()
        raise


def _started_over(
    first: _Copy, second: _Copy, rebuild: Rebuild | None
) -> tuple[MetadataDatabase, MetadataDatabase | None, Content]:
    """Create both databases anew, because each is empty, missing or damaged."""
    problems = [copy.problem for copy in (first, second) if copy.problem is not None]
    for problem in problems:
        if isinstance(problem, UnreadableError):
            raise problem
    if problems and rebuild is None:
        raise MetadataError("; ".join(map(str, problems)))
    salvaged = _merged(
        *(salvage(copy.path) for copy in (first, second) if copy.problem is not None)
    )
    content = rebuild(salvaged, was_damaged=bool(problems)) if rebuild else salvaged
    properties = content.properties | {CHANGES: str(content.changes + 1)}
    content = Content(content.topics, properties)
    _close(first)
    _close(second)
    _set_aside(first.path)
    database = MetadataDatabase(first.path)
    database.change(
        [topic.put() for topic in content.topics]
        + [put_property(name, value) for name, value in properties.items()]
    )
    return database, _replaced(second, database), content


def _merged(*salvaged: Content) -> Content:
    """Return the rows of both databases; of two with the same key, the row from the database with
    more changes.
    """
    topics: dict[bytes, TopicRecord] = {}
    properties: dict[str, str] = {}
    for content in sorted(salvaged, key=lambda copy: copy.changes):
        topics.update((topic.topic_id, topic) for topic in content.topics)
        properties.update(content.properties)
    return Content(sorted(topics.values(), key=lambda topic: topic.name), properties)


def _replaced(copy: _Copy, sound: MetadataDatabase) -> MetadataDatabase | None:
    """Rebuild a copy from a sound one; None if it cannot be written."""
    _close(copy)
    if copy.problem is not None:
        _set_aside(copy.path)
    else:
        _remove(copy.path)
    try:
        database = MetadataDatabase(copy.path)
    except StorageError as error:
        logger.error("the metadata has one copy until the next start: %s", error)  # noqa: TRY400 - the text says it all.
        _remove(copy.path)
        return None
    try:
        sound.copy_to(database)
    except StorageError as error:
        logger.error("the metadata has one copy until the next start: %s", error)  # noqa: TRY400 - the text says it all.
        database.destroy()
        return None
    return database


def _close(copy: _Copy) -> None:
    if copy.database is not None:
        copy.database.close()


def _remove(path: Path) -> None:
    for suffix in _SUFFIXES:
        with suppress(FileNotFoundError):
            path.with_name(path.name + suffix).unlink()


def _set_aside(path: Path) -> None:
    """Rename a damaged database and its write-ahead log, so that they can be examined."""
    for suffix in _SUFFIXES:
        file = path.with_name(path.name + suffix)
        try:
            file.replace(file.with_name(f"{file.name}{DAMAGED_SUFFIX}"))
        except FileNotFoundError:
            continue
        except OSError as error:
            raise StorageError(f"{file} cannot be set aside: {error}") from error
