"""TLS contexts from certificate files that may be renewed: new connections use the current files,
without a restart.

Each new connection checks the files with three calls of stat. Changed files are loaded into a new
context, because CAs can only be added to an existing one. If loading fails, for example because a
file is half written, the old context stays until the files change again.
"""

from __future__ import annotations

import logging
import os
import ssl
import threading
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from kohort.client.core.errors import ConfigError

logger = logging.getLogger(__name__)

FILE_BYTES_MAX: Final = 16 << 20
"""Maximum size of a file. Bundles with all public CAs have 250 KB."""

CAFILE: Final = "ssl_cafile"
CADATA: Final = "ssl_cadata"
CERTFILE: Final = "ssl_certfile"
KEYFILE: Final = "ssl_keyfile"
PASSWORD: Final = "ssl_password"  # noqa: S105 - the name of the setting.

_MISMATCHES: Final = ("KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH")

_Seen: TypeAlias = tuple[int, int, int, int]
"""Inode, size and change times of a file, or of the target if it is a link."""


class TlsFilesError(ConfigError):
    """A file cannot be used. `setting` is the name of its setting, `why` the reason."""

    def __init__(self, setting: str, why: str) -> None:
        super().__init__(f"{setting}: {why}")
        self.setting = setting
        self.why = why


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """The settings of a TLS context; None for a setting that is not set."""

    cafile: str | None = None
    """PEM file with the CAs to trust, instead of the system's."""
    cadata: str | None = None
    """The CAs to trust as PEM text, instead of a file."""
    certfile: str | None = None
    """PEM file with the client's certificate chain."""
    keyfile: str | None = None
    """PEM file with the private key, if `certfile` does not have it."""
    password: str | None = field(default=None, repr=False)
    check_hostname: bool = True

    def check(self) -> None:
        """Raise a TlsFilesError for settings that contradict each other."""
        if self.cafile is not None and self.cadata is not None:
            raise TlsFilesError(CADATA, f"{CAFILE} is set as well; use one of them")
        for setting, given in ((KEYFILE, self.keyfile), (PASSWORD, self.password)):
            if given is not None and self.certfile is None:
                raise TlsFilesError(setting, f"is set, but {CERTFILE} is not")

    def load(self) -> ssl.SSLContext:
        """Create a context from the current files. Raises a TlsFilesError."""
        for setting, path in self._paths():
            _check_size(setting, path)
        try:
            context = ssl.create_default_context(cafile=self.cafile, cadata=self.cadata)
        except (OSError, ValueError) as error:
            setting = CAFILE if self.cadata is None else CADATA
            raise TlsFilesError(setting, _why(error, self.cafile)) from error
        context.check_hostname = self.check_hostname
        if self.certfile is not None:
            self._load_own(context, self.certfile)
        return context

    def _load_own(self, context: ssl.SSLContext, certfile: str) -> None:
        was_password_used = False

        def password() -> str:
            nonlocal was_password_used
            was_password_used = True
            # Without this, OpenSSL would prompt at the terminal.
            return self.password or ""

        try:
            context.load_cert_chain(certfile, self.keyfile, password=password)
        except (OSError, ValueError) as error:
            if getattr(error, "reason", None) in _MISMATCHES:
                raise TlsFilesError(
                    CERTFILE,
                    f"{certfile!r}: the private key does not match the first certificate",
                ) from error
            if was_password_used and self.password is None:
                raise TlsFilesError(
                    CERTFILE, f"its private key is encrypted, and {PASSWORD} is not set"
                ) from error
            if was_password_used:
                raise TlsFilesError(PASSWORD, "it does not decrypt the private key") from error
            expected = "it must contain a private key and its certificates"
            if self.keyfile is not None:
                expected = f"{KEYFILE} {self.keyfile!r} must contain its private key"
            raise TlsFilesError(CERTFILE, f"{_why(error, certfile)}; {expected}") from error

    def seen(self) -> tuple[_Seen | None, ...]:
        """Return the inode, size and times of each file, by which changes are noticed."""
        return tuple(_seen(path) for _, path in self._paths())

    def _paths(self) -> list[tuple[str, str]]:
        settings = ((CAFILE, self.cafile), (CERTFILE, self.certfile), (KEYFILE, self.keyfile))
        return [(setting, path) for setting, path in settings if path is not None]


class RenewedContext:
    """The TLS context for new connections, reloaded when its files change; thread-safe."""

    def __init__(self, files: TlsFiles) -> None:
        """Load the files. Raises a TlsFilesError."""
        files.check()
        self._files = files
        self._lock = threading.Lock()
        self._seen = files.seen()
        self._context = files.load()

    def context(self) -> ssl.SSLContext:
        """Return the context for a new connection; may read files."""
        with self._lock:
            # Called before loading, so that the next call notices a change during loading.
            seen = self._files.seen()
            if seen != self._seen:
                self._seen = seen
                self._renew()
            return self._context

    def _renew(self) -> None:
        try:
            self._context = self._files.load()
        except TlsFilesError as error:
            logger.warning("%s; still using the previous certificates", error)
        else:
            logger.info("certificates have changed; new connections use them")


def _seen(path: str) -> _Seen | None:
    try:
        status = os.stat(path)  # noqa: PTH116 - Path would be made for each connection.
    except (OSError, ValueError):
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _check_size(setting: str, path: str) -> None:
    seen = _seen(path)
    if seen is not None and seen[1] > FILE_BYTES_MAX:
        raise TlsFilesError(setting, f"{path!r} has {seen[1]} bytes, too many for certificates")


def _why(error: Exception, path: str | None) -> str:
    name = "the text" if path is None else repr(path)
    if isinstance(error, ssl.SSLError):
        return f"{name} cannot be read as PEM ({error.reason or error})"
    return f"{name} cannot be read: {getattr(error, 'strerror', None) or error}"
