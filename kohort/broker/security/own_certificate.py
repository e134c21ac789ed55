"""Warnings about a listener's own certificate that clients may reject."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from kohort.broker.config import BrokerConfig
from kohort.broker.core.security.certificate import hosts_of, is_for
from kohort.broker.security.file_version import is_open_to_all
from kohort.broker.security.tls_context import KeyStore

NAMES_SHOWN: Final = 10


def complaints(listener: str, own: KeyStore, config: BrokerConfig, now: datetime) -> Iterator[str]:
    """Yield warnings about the certificate's validity, and the permissions of its key. Reads the
    file system.
    """
    since, until = moment_of(own.fields.not_before), moment_of(own.fields.not_after)
    if not since <= now <= until:
        problem = f"has expired at {until}" if now > until else f"is not valid before {since}"
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
        f"Listener {listener} advertises {host}, but its certificate is for "
        f"{', '.join(hosts[:NAMES_SHOWN]) or 'no host'}: clients that check names will reject it. "
        f"Add {host} to its subjectAltName, or change advertised.listeners"
    )


def moment_of(text: str) -> datetime:
    """Return a certificate's time, given as ``YYYYMMDDHHMMSSZ``."""
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)
