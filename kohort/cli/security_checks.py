"""Checks of ``kohort doctor`` for certificates, keys and users."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from kohort.broker.config import LoadedConfig
from kohort.broker.config.listeners import HTTP, uses_tls_for_http
from kohort.broker.core.security.mapping_rules import MappingRules, RulesError
from kohort.broker.security.errors import StoreError, UsersFileError
from kohort.broker.security.listeners import advertised_hosts
from kohort.broker.security.tls_context import load_tls
from kohort.broker.security.tls_listener import complaints, moment_of, name_complaint
from kohort.broker.security.users_file import (
    read_users_at,
    users_file_complaint,
)
from kohort.cli.doctor import OK, PROBLEM, WARNING, Finding


def check_security(loaded: LoadedConfig) -> Iterator[Finding]:
    """Check certificates, keys and the users file, as a broker does at startup."""
    config = loaded.config
    for endpoint in config.listener_endpoints:
        if config.protocol_of(endpoint.listener).endswith("SSL"):
            hosts = advertised_hosts(config, endpoint.listener)
            yield from _certificate(loaded, endpoint.listener, *hosts)
    if uses_tls_for_http(loaded.own):
        yield from _certificate(loaded, HTTP)
    if config.kohort_users_file is not None:
        yield _users(config.kohort_users_file)


def _certificate(loaded: LoadedConfig, listener: str, *hosts: str) -> Iterator[Finding]:
    what, config = f"certificate {listener}", loaded.of_listener(listener)
    try:
        own = load_tls(config, listener).own
        MappingRules(config.ssl_principal_mapping_rules)
    except StoreError as error:
        yield Finding(PROBLEM, what, str(error))
        return
    except RulesError as error:
        text = f"listener {listener}: ssl.principal.mapping.rules: {error}"
        yield Finding(PROBLEM, what, text)
        return
    warnings = list(complaints(listener, own, config, datetime.now(UTC)))
    warnings += filter(None, (name_complaint(listener, own, host) for host in hosts))
    for warning in warnings:
        yield Finding(WARNING, what, warning)
    if not warnings:
        until = moment_of(own.fields.not_after)
        yield Finding(OK, what, f"{own.subject}, until {until:%Y-%m-%d}")


def _users(file: str) -> Finding:
    try:
        credentials = read_users_at(Path(file))
    except UsersFileError as error:
        return Finding(PROBLEM, "users", str(error))
    if (complaint := users_file_complaint(Path(file))) is not None:
        return Finding(WARNING, "users", complaint)
    count = len({credential.user for credential in credentials})
    return Finding(OK, "users", f"{file} has {count}")
