"""Users that a file gives, besides those that are stored (`kohort.users.file`).

One line for each user and mechanism, as `kohort users hash` prints it, the last three in base64:
``name:SCRAM-SHA-256$<iterations>$<salt>$<stored key>$<server key>``. Empty lines, and lines that
begin with #, are skipped. The file is read at the start and after each change, as a whole or not at
all, and never written.
"""

import asyncio
import base64
import hashlib
import logging
import re
from collections.abc import Mapping
from concurrent.futures import Executor
from pathlib import Path
from typing import Final

from kohort.broker.core.security.scram import Credential
from kohort.broker.security.file_version import FileVersion, is_open_to_all, version_of
from kohort.broker.security.users import USERS_MAX, Change, CredentialKey, Users
from kohort.protocol.scram import (
    HASHES,
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    NAME_BYTES_MAX,
    SALT_BYTES_MAX,
    Keys,
)

logger = logging.getLogger(__name__)

BYTES_MAX: Final = 64 << 20
"""Bound on the file; enough for 100,000 users with both mechanisms."""

_COUNT: Final = re.compile(r"[1-9][0-9]{0,9}")
_PARTS: Final = 5

Credentials = dict[CredentialKey, Credential]


class UsersFileError(Exception):
    """A file of users that cannot be used; the text names the line but repeats nothing of it."""


class UsersFile:
    """The file at a path, and what was last read from it."""

    def __init__(self, path: Path, users: Users) -> None:
        self.reload_failures = 0
        self._path = path
        self._users = users
        self._given: Credentials = {}
        self._seen: FileVersion | None = None
        self._lock = asyncio.Lock()

    def load(self) -> None:
        """Load the users of the file, at the start. Blocks on the disk. Raises UsersFileError."""
        self._users.apply_given(self._read())
        told = users_file_complaint(self._path)
        if told is not None:
            logger.warning("%s", told)

    async def look(self, executor: Executor) -> None:
        """Reload if the file has changed since it was read."""
        loop = asyncio.get_running_loop()
        if await loop.run_in_executor(executor, version_of, self._path) != self._seen:
            await self.reload(executor)

    async def reload(self, executor: Executor) -> None:
        """Load the users that the file has now. On failure the old ones stay, and it is logged."""
        loop = asyncio.get_running_loop()
        async with self._lock:
            try:
                changes = await loop.run_in_executor(executor, self._read)
            except UsersFileError as error:
                self.reload_failures += 1
                logger.error("The users are not renewed: %s", error)  # noqa: TRY400 - the text says it all.
                return
            self._users.apply_given(changes)
            logger.info(
                "kohort.users.file was read again, %d of its credentials are new or gone",
                len(changes),
            )

    def _read(self) -> list[Change]:
        """Read the file, and return how it differs from what was read before."""
        # Taken before the read: a write during the read is found by the next check.
        self._seen = version_of(self._path)
        before, self._given = self._given, read_users_at(self._path)
        return _differences(before, self._given)


def read_users_at(path: Path) -> Credentials:
    """The credentials in a file. Blocks on the disk. Raises UsersFileError."""
    try:
        with path.open("rb") as file:
            data = file.read(BYTES_MAX + 1)
    except OSError as error:
        raise UsersFileError(f"kohort.users.file cannot be read: {error}") from None
    try:
        return read_users(data)
    except UsersFileError as error:
        raise UsersFileError(f"kohort.users.file: {path}: {error}") from None


def users_file_complaint(path: Path) -> str | None:
    """A sentence about a file that others can read. Reads the file system."""
    if not is_open_to_all(path):
        return None
    return (
        f"kohort.users.file: {path} can be read by every user of this machine, who could guess "
        "passwords by it: chmod 600"
    )


def read_users(data: bytes) -> Credentials:
    """The credentials in the bytes of a file. Raises UsersFileError."""
    if len(data) > BYTES_MAX:
        raise UsersFileError(f"the file is larger than {BYTES_MAX >> 20} MiB")
    found: Credentials = {}
    lines: dict[CredentialKey, int] = {}
    names: set[str] = set()
    # Not splitlines: a name may have characters that it treats as line ends.
    for number, ended in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        line = ended.removesuffix(b"\r")
        if not line.strip() or line.startswith(b"#"):
            continue
        try:
            key, credential = _read_line(line)
        except ValueError as error:
            raise UsersFileError(f"line {number}: {error}") from None
        if key in found:
            raise UsersFileError(
                f"line {number}: the user and mechanism of line {lines[key]} once more"
            )
        names.add(key.user)
        if len(names) > USERS_MAX:
            raise UsersFileError(f"line {number}: more than {USERS_MAX} users")
        found[key], lines[key] = credential, number
    return found


def credential_line(user: str, mechanism: str, credential: Credential) -> str:
    """The line of one credential. Raises ValueError if a line cannot hold such a name."""
    parts = [
        mechanism,
        str(credential.iterations),
        *(base64.b64encode(one).decode() for one in (credential.salt, *credential.keys)),
    ]
    line = f"{user}:{'$'.join(parts)}"
    if list(read_users(line.encode())) != [CredentialKey(user, mechanism)]:
        raise ValueError("the name begins with #, or has an end of line in it")
    return line


def _read_line(line: bytes) -> tuple[CredentialKey, Credential]:
    """Parse a line. Raises ValueError, without the line's text: it may be a password by mistake."""
    try:
        text = line.decode()
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8") from None
    # The last colon: names may contain colons, what follows does not.
    user, colon, rest = text.rpartition(":")
    parts = rest.split("$")
    if not colon or len(parts) != _PARTS:
        raise ValueError(
            "it is not name:mechanism$iterations$salt$stored key$server key"
            " (`kohort users hash` makes such lines)"
        )
    mechanism, count, *encoded = parts
    if not user:
        raise ValueError("the name is empty")
    if len(user.encode()) > NAME_BYTES_MAX:
        raise ValueError(f"the name has more than {NAME_BYTES_MAX} bytes")
    if mechanism not in HASHES:
        raise ValueError(f"the mechanism is none of {', '.join(HASHES)}")
    if not _COUNT.fullmatch(count) or not ITERATIONS_MIN <= int(count) <= ITERATIONS_MAX:
        raise ValueError(f"the iterations are no number of {ITERATIONS_MIN} to {ITERATIONS_MAX}")
    names = ("salt", "stored key", "server key")
    salt, *keys = map(_decoded, names, encoded)
    if len(salt) > SALT_BYTES_MAX:
        raise ValueError(f"the salt has more than {SALT_BYTES_MAX} bytes")
    size = hashlib.new(HASHES[mechanism]).digest_size
    for name, key in zip(names[1:], keys, strict=True):
        if len(key) != size:
            raise ValueError(f"the {name} does not have the {size} bytes of {mechanism}")
    return CredentialKey(user, mechanism), Credential(salt, Keys(*keys), int(count))


def _decoded(name: str, text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise ValueError(f"the {name} is not base64") from None


def _differences(
    before: Mapping[CredentialKey, Credential], now: Mapping[CredentialKey, Credential]
) -> list[Change]:
    keys = {**before, **now}
    return [(key, now.get(key)) for key in keys if before.get(key) != now.get(key)]
