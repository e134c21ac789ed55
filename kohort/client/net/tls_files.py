"""TLS by certificate files, which somebody else may renew: new connections use what the files say
then, without a restart.

The files are looked at when a connection is made: three calls of stat. What has changed is loaded
into a new context, since to an old one authorities can only be added. If it cannot be loaded, for
example because it is half written, the old one stays until the files change again.
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
"""Bundles with all public authorities have 250 KB."""

CAFILE: Final = "ssl_cafile"
CADATA: Final = "ssl_cadata"
CERTFILE: Final = "ssl_certfile"
KEYFILE: Final = "ssl_keyfile"
PASSWORD: Final = "ssl_password"  # noqa: S105 - the name of the setting.

_MISMATCHES: Final = ("KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH")

_Seen: TypeAlias = tuple[int, int, int, int]
"""Inode, size, and the times of change; links are followed, so that their target counts."""


class TlsFilesError(ConfigError):
    """A file cannot be used; `setting` names it, and `why` says it without that name."""

    def __init__(self, setting: str, why: str) -> None:
        super().__init__(f"{setting}: {why}")
        self.setting = setting
        self.why = why


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """What a context is made of; None for what is not given."""

    cafile: str | None = None
    """PEM file with the authorities to trust, in place of the system's."""
    cadata: str | None = None
    """The same as a text."""
    certfile: str | None = None
    """PEM file with the client's certificate and those that lead to an authority."""
    keyfile: str | None = None
    """PEM file with its private key, if that is not in `certfile`."""
    password: str | None = field(default=None, repr=False)
    check_hostname: bool = True

    def check(self) -> None:
        """Raise a TlsFilesError for settings that contradict each other."""
        if self.cafile is not None and self.cadata is not None:
            raise TlsFilesError(CADATA, f"{CAFILE} is given as well; one of them is enough")
        for setting, given in ((KEYFILE, self.keyfile), (PASSWORD, self.password)):
            if given is not None and self.certfile is None:
                raise TlsFilesError(setting, f"is given, but no {CERTFILE}")

    def load(self) -> ssl.SSLContext:
        """Make a context of what the files say now. Raises a TlsFilesError."""
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
        asked = False

        def password() -> str:
            nonlocal asked
            asked = True
            # Never asked for at the terminal, which OpenSSL would do by itself.
            return self.password or ""

        try:
            context.load_cert_chain(certfile, self.keyfile, password=password)
        except (OSError, ValueError) as error:
            if getattr(error, "reason", None) in _MISMATCHES:
                raise TlsFilesError(
                    CERTFILE,
                    f"{certfile!r}: the private key is not that of the first certificate",
                ) from error
            if asked and self.password is None:
                raise TlsFilesError(
                    CERTFILE, f"its private key is encrypted, and {PASSWORD} is not set"
                ) from error
            if asked:
                raise TlsFilesError(PASSWORD, "it is not that of the private key") from error
            what = "it has to have a private key and its certificates"
            if self.keyfile is not None:
                what = f"{KEYFILE} {self.keyfile!r} has to have its private key"
            raise TlsFilesError(CERTFILE, f"{_why(error, certfile)}; {what}") from error

    def seen(self) -> tuple[_Seen | None, ...]:
        """What tells that a file has changed; None for one that is not there."""
        return tuple(_seen(path) for _, path in self._paths())

    def _paths(self) -> list[tuple[str, str]]:
        given = ((CAFILE, self.cafile), (CERTFILE, self.certfile), (KEYFILE, self.keyfile))
        return [(setting, path) for setting, path in given if path is not None]


class RenewedContext:
    """The context for new connections; to be used from any thread."""

    def __init__(self, files: TlsFiles) -> None:
        """Load the files. Raises a TlsFilesError."""
        files.check()
        self._files = files
        self._lock = threading.Lock()
        self._seen = files.seen()
        self._context = files.load()

    def context(self) -> ssl.SSLContext:
        """Return the context for a connection that is made now; reads files."""
        with self._lock:
            # Before loading: a change that comes meanwhile is seen next time.
            seen = self._files.seen()
            if seen != self._seen:
                self._seen = seen
                self._renew()
            return self._context

    def _renew(self) -> None:
        try:
            self._context = self._files.load()
        except TlsFilesError as error:
            logger.warning("%s; the certificates that were there before stay in use", error)
        else:
            logger.info("certificates have changed, and new connections use them")


def _seen(path: str) -> _Seen | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - Path would be made for each connection.
    except (OSError, ValueError):
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _check_size(setting: str, path: str) -> None:
    seen = _seen(path)
    if seen is not None and seen[1] > FILE_BYTES_MAX:
        raise TlsFilesError(setting, f"{path!r} has {seen[1]} bytes, which is no certificate")


def _why(error: Exception, path: str | None) -> str:
    name = "the text" if path is None else repr(path)
    if isinstance(error, ssl.SSLError):
        return f"{name} cannot be read as PEM ({error.reason or error})"
    return f"{name} cannot be read: {getattr(error, 'strerror', None) or error}"
