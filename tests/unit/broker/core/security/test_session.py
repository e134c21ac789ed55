"""Principals and sessions are values."""

from kohort.broker.core.security.session import ANONYMOUS, Principal, Session


def test_a_principal_is_written_as_rules_write_it() -> None:
    assert str(Principal("User", "CN=alice,OU=eng")) == "User:CN=alice,OU=eng"
    assert str(ANONYMOUS) == "User:ANONYMOUS"


def test_principals_are_compared_letter_by_letter() -> None:
    assert Principal("User", "bob") == Principal("User", "bob")
    assert Principal("user", "bob") != Principal("User", "bob") != Principal("User", "Bob")


def test_a_session_without_a_lifetime_never_expires() -> None:
    assert Session(ANONYMOUS, "127.0.0.1", "PLAINTEXT").expires_ms is None
