"""Passwords as a broker stores them, where no broker is asked."""

from kohort.admin.users import Password
from kohort.broker.core.security.scram import Credential
from kohort.protocol.scram import HASHES, keys_of


def credential_of(password: Password) -> Credential:
    """Return the credential that a broker makes of a password."""
    keys = keys_of(HASHES[password.mechanism], password.salted)
    return Credential(password.salt, keys, password.iterations)
