"""The users file (`kohort.users.file`), an addition to the stored users.

It has one line per user and mechanism, as printed by `kohort users hash`, the last three parts in
base64: ``name:SCRAM-SHA-256$<iterations>$<salt>$<stored key>$<server key>``. Empty lines and lines
that begin with # are skipped. The file is read at the start and after each change, all or nothing,
and never written.
"""

import asyncio
import base64
import logging
import re
from collections.abc import Mapping
from concurrent.futures import Executor
from pathlib import Path
from typing import Final

from kohort.broker.core.security.sasl import Credential
from kohort.broker.security.errors import UsersFileError
from kohort.broker.security.file_version import FileVersion, is_open_to_all, version_of
from kohort.broker.security.users import USERS_MAX, Change, CredentialKey, Users
from kohort.protocol.scram import (
    HASHES,
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    NAME_BYTES_MAX,
    SALT_BYTES_MAX,
    Keys,
    hashed,
)

logger = logging.getLogger(__name__)

BYTES_MAX: Final = 64 << 20
"""Maximum size of the file: enough for 100,000 users with both mechanisms."""

_COUNT: Final = r"[1-9][0-9]{0,9}"
_PARTS: Final = 5

Credentials = dict[CredentialKey, Credential]


class UsersFile:
    """The file at a path, and its credentials when it was last read."""

    def __init__(self, path: Path, users: Users) -> None:
        self.reload_failures = 0
        self._path = path
        self._users = users
        self._given: Credentials = {}
        self._seen: FileVersion | None = None
        self._lock = asyncio.Lock()

    def load(self) -> None:
        """Load the file at the start. Blocks on the disk. Raises UsersFileError."""
        self._users.apply_given(self._read())
        warning = users_file_complaint(self._path)
        if warning is not None:
            logger.warning("%s", warning)

    async def reload_if_changed(self, executor: Executor) -> None:
        """Reload if the file has changed since it was read."""
        loop = asyncio.get_running_loop()
        if await loop.run_in_executor(executor, version_of, self._path) != self._seen:
            await self.reload(executor)

    async def reload(self, executor: Executor) -> None:
        """Reload the file. A failure is logged, and the old users stay."""
        loop = asyncio.get_running_loop()
        async with self._lock:
            try:
                changes = await loop.run_in_executor(executor, self._read)
            except UsersFileError as error:
                self.reload_failures += 1
                logger.error("Cannot reload the users: %s", error)  # noqa: TRY400 - no traceback needed.
                return
            self._users.apply_given(changes)
            logger.info(
                "Reloaded kohort.users.file, %d credentials have changed",
                len(changes),
            )

    def _read(self) -> list[Change]:
        """Read the file, and return the changes since it was last read."""
        # Before the read, so that the next check notices a write during the read.
        self._seen = version_of(self._path)
        before, self._given = self._given, read_users_at(self._path)
        return _differences(before, self._given)


def read_users_at(path: Path) -> Credentials:
    """Return the credentials in a file. Blocks on the disk. Raises UsersFileError."""
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
    """Return a warning if every user of this machine may read the file. Reads the file system."""
    if not is_open_to_all(path):
        return None
    return (
        f"kohort.users.file: {path} can be read by every user of this machine, who could guess "
        "passwords by it: chmod 600"
    )


def read_users(data: bytes) -> Credentials:
    """Return the credentials in a file's bytes. Raises UsersFileError."""
    if len(data) > BYTES_MAX:
        raise UsersFileError(f"the file is larger than {BYTES_MAX >> 20} MiB")
    found: Credentials = {}
    lines: dict[CredentialKey, int] = {}
    names: set[str] = set()
    # Not splitlines: a name may contain characters that it treats as line ends.
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
                f"line {number}: the same user and mechanism as in line {lines[key]}"
            )
        names.add(key.user)
        if len(names) > USERS_MAX:
            raise UsersFileError(f"line {number}: more than {USERS_MAX} users")
        found[key], lines[key] = credential, number
    return found


def credential_line(user: str, mechanism: str, credential: Credential) -> str:
    """Return the line of a credential. Raises ValueError for a name that no line can contain."""
    parts = [
        mechanism,
        str(credential.iterations),
        *(base64.b64encode(part).decode() for part in (credential.salt, *credential.keys)),
    ]
    line = f"{user}:{'$'.join(parts)}"
    if list(read_users(line.encode())) != [CredentialKey(user, mechanism)]:
        raise ValueError("the name begins with #, or contains a line end")
    return line


def _read_line(line: bytes) -> tuple[CredentialKey, Credential]:
    """Parse a line. The text of a ValueError omits the line, which may be a password by mistake."""
    try:
        text = line.decode()
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8") from None
    # The last colon: names may contain colons, the rest does not.
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
        raise ValueError(f"the mechanism is not one of {', '.join(HASHES)}")
    if not re.fullmatch(_COUNT, count) or not ITERATIONS_MIN <= int(count) <= ITERATIONS_MAX:
        raise ValueError(f"the iterations are not {ITERATIONS_MIN} to {ITERATIONS_MAX}")
    names = ("salt", "stored key", "server key")
    salt, *keys = map(_decoded, names, encoded)
    if len(salt) > SALT_BYTES_MAX:
        raise ValueError(f"the salt has more than {SALT_BYTES_MAX} bytes")
    size = len(hashed(HASHES[mechanism], b""))
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
