"""What `kohort doctor` says of certificates, keys and users: the same as the start of a broker."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from kohort.broker.config import LoadedConfig
from kohort.broker.config.listeners import HTTP, uses_tls_for_http
from kohort.broker.core.security.mapping_rules import MappingRules, RulesError
from kohort.broker.security.listeners import advertised_hosts
from kohort.broker.security.own_certificate import complaints, moment_of, name_complaint
from kohort.broker.security.tls_context import StoreError, load_tls
from kohort.broker.security.users_file import (
    UsersFileError,
    read_users_at,
    users_file_complaint,
)


class Looked(NamedTuple):
    """What was found of one thing."""

    what: str
    summary: str = ""
    problem: str = ""
    """What stops a start."""
    complaints: tuple[str, ...] = ()
    """What a start warns of."""


def security_files(loaded: LoadedConfig) -> Iterator[Looked]:
    """Look at each certificate and at the file of users, if there are any. Reads files."""
    config = loaded.config
    for endpoint in config.listener_endpoints:
        if config.protocol_of(endpoint.listener).endswith("SSL"):
            hosts = advertised_hosts(config, endpoint.listener)
            yield _certificate(loaded, endpoint.listener, *hosts)
    if uses_tls_for_http(loaded.own):
        yield _certificate(loaded, HTTP)
    if config.kohort_users_file is not None:
        yield _users(config.kohort_users_file)


def _certificate(loaded: LoadedConfig, listener: str, *hosts: str) -> Looked:
    what, config = f"certificate {listener}", loaded.of_listener(listener)
    try:
        own = load_tls(config, listener).own
        MappingRules(config.ssl_principal_mapping_rules)
    except StoreError as error:
        return Looked(what, problem=str(error))
    except RulesError as error:
        told = f"listener {listener}: ssl.principal.mapping.rules: {error}"
        return Looked(what, problem=told)
    found = list(complaints(listener, own, config, datetime.now(UTC)))
    found += filter(None, (name_complaint(listener, own, host) for host in hosts))
    until = moment_of(own.fields.not_after)
    return Looked(what, f"{own.subject}, until {until:%Y-%m-%d}", complaints=tuple(found))


def _users(path: str) -> Looked:
    try:
        found = read_users_at(Path(path))
    except UsersFileError as error:
        return Looked("users", problem=str(error))
    told = users_file_complaint(Path(path))
    count = len({key.user for key in found})
    return Looked("users", f"{path} has {count}", complaints=() if told is None else (told,))
