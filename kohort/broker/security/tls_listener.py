"""TLS of one listener while the broker runs: its certificate, renewed without a restart, and the
principal that a client's certificate stands for.

A renewed store makes a new context and never adds authorities to the old one: an authority that was
removed would stay trusted.
"""

import logging
import ssl
from collections.abc import Callable
from datetime import UTC, datetime

from kohort.broker.config import BrokerConfig
from kohort.broker.core.security.certificate import DerError
from kohort.broker.core.security.distinguished_name import has_nul, subject_of
from kohort.broker.core.security.mapping_rules import MappingRules, NoRuleError
from kohort.broker.core.security.session import USER, Principal
from kohort.broker.network.service import NewConnection, TlsPeer
from kohort.broker.network.tls.pump import TlsError
from kohort.broker.security.file_version import FileVersion, version_of
from kohort.broker.security.own_certificate import complaints, moment_of, name_complaint
from kohort.broker.security.tls_context import KeyStore, Loaded, StoreError, load_tls

logger = logging.getLogger(__name__)


class TlsListener:
    """See the module. Methods that read files say so."""

    def __init__(
        self,
        listener: str,
        config: Callable[[], BrokerConfig],
        *,
        lets_in: bool,
        is_disabled: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """Read the stores. `config` returns the listener's current settings; `lets_in` says that a
        client's certificate decides its principal, which it does not with SASL; `is_disabled` says
        whether a user is refused even with a valid certificate.

        Raises StoreError, or RulesError for wrong mapping rules.
        """
        self.listener = listener
        self.reload_failures = 0
        self._config = config
        self._lets_in = lets_in
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
        """Log a warning if clients that are sent to `host` will find a certificate for others."""
        told = name_complaint(self.listener, self._own, host)
        if told is not None:
            logger.warning("%s", told)

    def _warn(self) -> None:
        """Log what clients, or an operator, should not find. Reads the file system."""
        now = datetime.now(UTC)
        for told in complaints(self.listener, self._own, self._config(), now):
            logger.warning("%s", told)

    def established(self, connection: NewConnection, peer: TlsPeer) -> None:
        """Set the client's principal from its certificate, if the certificate decides that.

        Raises:
            TlsError: the certificate gives no principal, or that of a disabled user.
        """
        if not self._lets_in:
            return
        session = connection.info.session
        certificate = peer.peer_certificate
        if certificate is not None:
            try:
                subject = subject_of(certificate)
                if has_nul(subject):
                    raise TlsError("the certificate's subject has a NUL in it")
                name = self._rules.name_for(subject)
            except (DerError, NoRuleError) as error:
                raise TlsError(str(error)) from None
            if self._is_disabled(name):
                raise TlsError(f"the user {name[:100]!r} is disabled")
            session = session._replace(principal=Principal(USER, name))
        connection.on_authenticated(session)

    def check(self, config: BrokerConfig) -> Loaded:
        """Check stores that are to replace the current ones. Reads files.

        Raises:
            StoreError: they cannot be used, or belong to another identity.
        """
        loaded = load_tls(config, self.listener)
        if not config.ssl_allow_dn_changes and loaded.own.subject != self._own.subject:
            raise StoreError(
                f"listener {self.listener}: the new key store is for {loaded.own.subject!r}, and "
                f"the one before it for {self._own.subject!r}; ssl.allow.dn.changes lets it"
            )
        missing = self._own.fields.alternative_names - loaded.own.fields.alternative_names
        if missing and not config.ssl_allow_san_changes:
            raise StoreError(
                f"listener {self.listener}: the new key store lacks {len(missing)} of the "
                "alternative names of the one before it; ssl.allow.san.changes lets it"
            )
        return loaded

    def reload(self) -> None:
        """Load the stores that the settings name now. Reads files; on failure the old ones stay."""
        self._seen = self._files()
        try:
            loaded = self.check(self._config())
        except StoreError as error:
            self.reload_failures += 1
            if not self._is_failing:
                logger.error("The certificate is not renewed: %s", error)  # noqa: TRY400 - the text says it all.
            self._is_failing = True
            return
        self._is_failing = False
        self._own = loaded.own
        self.context = loaded.context
        logger.info("Listener %s has new TLS stores, good until %s", self.listener, self.not_after)
        self._warn()

    def look(self) -> None:
        """Reload if the files have changed since they were read. Reads files."""
        if self._files() != self._seen:
            self.reload()

    def _files(self) -> tuple[FileVersion | None, ...]:
        config = self._config()
        paths = (config.ssl_keystore_location, config.ssl_truststore_location)
        return tuple(None if path is None else version_of(path) for path in paths)
