"""Reads `sasl.jaas.config` of a client: a user name and its password."""

from typing import Final, NamedTuple

from kohort.formats.jaas import JaasError, parse_login_module

__all__ = ["JaasError", "Login", "parse_jaas"]

MODULES: Final = ("PlainLoginModule", "ScramLoginModule")


class Login(NamedTuple):
    """A user name and its password. The text of it does not have the password."""

    username: str
    password: str

    def __repr__(self) -> str:
        return f"Login({self.username!r})"


def parse_jaas(text: str) -> Login:
    """`org...PlainLoginModule required username="u" password="p";`, or with ScramLoginModule.

    Raises:
        JaasError: something else.
    """
    module, options = parse_login_module(text, MODULES)
    for name in options:
        if name not in Login._fields:
            raise JaasError(f"of {module} only username and password are known here")
    for name in Login._fields:
        if not options.get(name):
            raise JaasError(f'it has to have {name}="..."')
    return Login(**options)
