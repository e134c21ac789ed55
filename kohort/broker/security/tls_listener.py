"""TLS of one listener: its certificate, reloaded without a restart, and the principals of client
certificates.

A reload creates a new context instead of adding authorities to the old one, in which removed
authorities would stay trusted.
"""

import logging
import ssl
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Final

from kohort.broker.config import BrokerConfig
from kohort.broker.core.security.certificate import DerError, has_nul, hosts_of, is_for, subject_of
from kohort.broker.core.security.mapping_rules import MappingRules, NoRuleError
from kohort.broker.core.security.session import USER, Principal
from kohort.broker.network.service import NewConnection, TlsPeer
from kohort.broker.network.tls.pump import TlsError
from kohort.broker.security.errors import StoreError
from kohort.broker.security.file_version import FileVersion, is_open_to_all, version_of
from kohort.broker.security.tls_context import KeyStore, Loaded, load_tls

logger = logging.getLogger(__name__)


class TlsListener:
    """TLS of one listener. Methods that read files say so."""

    def __init__(
        self,
        listener: str,
        config: Callable[[], BrokerConfig],
        *,
        authenticates: bool,
        is_disabled: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """Load the stores.

        Args:
            config: returns the listener's current settings.
            authenticates: whether the client's certificate determines its principal; False with
                SASL.
            is_disabled: whether a user is rejected even with a valid certificate.

        Raises:
            StoreError: a store is unusable.
            RulesError: invalid mapping rules.
        """
        self.listener = listener
        self.reload_failures = 0
        self._config = config
        self._authenticates = authenticates
        self._is_disabled = is_disabled
        self._rules = MappingRules(config().ssl_principal_mapping_rules)
        loaded = load_tls(config(), listener)
        self.context: ssl.SSLContext = loaded.context
        self._own: KeyStore = loaded.own
        self._seen = self._files()
        self._is_failing = False
        self._warn()

    @property
    def not_after(self) -> str:
        """End of the certificate's validity, as ``YYYYMMDDHHMMSSZ``."""
        return self._own.fields.not_after

    @property
    def expires_s(self) -> float:
        """End of the certificate's validity in seconds since 1970."""
        return moment_of(self.not_after).timestamp()

    def warn_of_name(self, host: str) -> None:
        """Log a warning if the certificate is not for `host`, which the listener advertises."""
        warning = name_complaint(self.listener, self._own, host)
        if warning is not None:
            logger.warning("%s", warning)

    def _warn(self) -> None:
        """Log warnings about the certificate and the key. Reads the file system."""
        now = datetime.now(UTC)
        for warning in complaints(self.listener, self._own, self._config(), now):
            logger.warning("%s", warning)

    def established(self, connection: NewConnection, peer: TlsPeer) -> None:
        """Authenticate the client by its certificate, unless SASL follows.

        Raises:
            TlsError: no principal for the certificate, or a disabled user.
        """
        if not self._authenticates:
            return
        session = connection.info.session
        certificate = peer.peer_certificate
        if certificate is not None:
            try:
                subject = subject_of(certificate)
                if has_nul(subject):
                    raise TlsError("the certificate's subject contains a NUL")
                name = self._rules.name_for(subject)
            except (DerError, NoRuleError) as error:
                raise TlsError(str(error)) from None
            if self._is_disabled(name):
                raise TlsError(f"the user {name[:100]!r} is disabled")
            session = session._replace(principal=Principal(USER, name))
        connection.on_authenticated(session)

    def check(self, config: BrokerConfig) -> Loaded:
        """Load the stores that are to replace the current ones, and return them. Reads files.

        Raises:
            StoreError: a store is unusable, or the new certificate has another subject or lacks
                alternative names, without the setting that allows it.
        """
        loaded = load_tls(config, self.listener)
        if not config.ssl_allow_dn_changes and loaded.own.subject != self._own.subject:
            raise StoreError(
                f"listener {self.listener}: the new key store is for {loaded.own.subject!r} instead"
                f" of {self._own.subject!r}; ssl.allow.dn.changes allows that"
            )
        missing = self._own.fields.alternative_names - loaded.own.fields.alternative_names
        if missing and not config.ssl_allow_san_changes:
            raise StoreError(
                f"listener {self.listener}: the new key store lacks {len(missing)} of the previous "
                "alternative names; ssl.allow.san.changes allows that"
            )
        return loaded

    def reload(self) -> None:
        """Reload the stores. Reads files; on failure the old ones stay in use."""
        self._seen = self._files()
        try:
            loaded = self.check(self._config())
        except StoreError as error:
            self.reload_failures += 1
            if not self._is_failing:
                logger.error("Cannot reload the certificate: %s", error)  # noqa: TRY400 - no traceback needed.
            self._is_failing = True
            return
        self._is_failing = False
        self._own = loaded.own
        self.context = loaded.context
        logger.info(
            "Listener %s has reloaded its TLS stores, valid until %s",
            self.listener,
            moment_of(self.not_after),
        )
        self._warn()

    def reload_if_changed(self) -> None:
        """Reload if the files have changed since they were read. Reads files."""
        if self._files() != self._seen:
            self.reload()

    def _files(self) -> tuple[FileVersion | None, ...]:
        config = self._config()
        paths = (config.ssl_keystore_location, config.ssl_truststore_location)
        return tuple(None if path is None else version_of(path) for path in paths)


NAMES_SHOWN: Final = 10


def complaints(listener: str, own: KeyStore, config: BrokerConfig, now: datetime) -> Iterator[str]:
    """Yield warnings about the certificate's validity and the permissions of its key."""
    since, until = moment_of(own.fields.not_before), moment_of(own.fields.not_after)
    if not since <= now <= until:
        problem = f"expired at {until}" if now > until else f"is not valid before {since}"
        yield (
            f"The certificate of listener {listener} {problem}: clients will reject it until it is "
            "renewed"
        )
    path = config.ssl_keystore_location
    if path is not None and is_open_to_all(path):
        yield (
            f"The key store of listener {listener}, {path}, can be read by every user of this "
            "machine, who could impersonate this broker: chmod 600"
        )


def name_complaint(listener: str, own: KeyStore, host: str) -> str | None:
    """Return a warning if the certificate is not for `host`, which the listener advertises."""
    hosts = hosts_of(own.fields)
    if is_for(host, hosts):
        return None
    return (
        f"Listener {listener} advertises {host}, but its certificate names "
        f"{', '.join(hosts[:NAMES_SHOWN]) or 'no host'}: clients that check names will reject it. "
        f"Add {host} to its subjectAltName, or change advertised.listeners"
    )


def moment_of(text: str) -> datetime:
    """Parse a certificate's time, which has the form ``YYYYMMDDHHMMSSZ``."""
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)
