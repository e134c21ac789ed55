"""Settings of authorization and quotas; access rules are not settings, clients create them."""

import re
from collections.abc import Iterator
from typing import Final

from kohort.broker.config.settings import Boolean, Int, Password, Settings, String, setting

AUTHORIZERS: Final = ("", "org.apache.kafka.metadata.authorizer.StandardAuthorizer", "kohort")

USER: Final = "User"
_NEXT: Final = re.compile(r",\s*User:")
"""A comma before a principal, where a semicolon was probably meant."""


def parse_super_users(text: str) -> tuple[str, ...]:
    """Split `super.users` into principals."""
    return tuple(part.strip() for part in text.split(";") if part.strip())


def super_users_problem(text: str) -> str | None:
    """Return, without names, why the list of principals is invalid; None if it is valid."""
    for number, principal in enumerate(parse_super_users(text), 1):
        if ":" not in principal:
            return f"super.users: principal {number} has no type, as in User:name"
    return None


def super_users_warnings(text: str) -> Iterator[str]:
    """Yield warnings about valid principals that probably match no user."""
    for number, principal in enumerate(parse_super_users(text), 1):
        kind, _, name = principal.partition(":")
        if not name:
            yield f"super.users: principal {number} has no type, as in User:name"
        elif kind != USER and kind.lower() == USER.lower():
            yield (
                f"super.users: principal {number} matches no user: the type is case-sensitive, "
                "as in User:name"
            )
        elif _NEXT.search(principal):
            yield (
                f"super.users: principal {number} contains a comma followed by User:, so it "
                "matches no user; separate principals with semicolons"
            )


class AccessSettings(Settings):
    """Access."""

    authorizer_class_name: String = setting(
        "",
        one_of=AUTHORIZERS,
        doc="Empty: all operations are allowed. Either of the other values: only operations "
        "that rules allow; kafka-acls.sh or `kohort acl` create them. Both names mean "
        "the same.",
    )
    super_users: Password = setting(
        "",
        doc="Principals that may do everything, regardless of rules, separated by "
        "semicolons: `User:admin;User:CN=ops,OU=it`.",
    )
    allow_everyone_if_no_acl_found: Boolean = setting(
        False,
        doc="Whether all operations on a resource are allowed while no rule matches its "
        "name, for any principal.",
    )
    kohort_access_loss_confirmed: String = setting(
        "",
        dynamic=True,
        doc="After a loss of access rules, only super users have access. An administrator "
        "confirms the loss by setting its name, which the log shows; then the remaining "
        "rules apply again.",
    )


class QuotaSettings(Settings):
    """Quotas."""

    quota_window_num: Int = setting(
        11, at_least=1, doc="Number of samples of a client's recent usage."
    )
    quota_window_size_seconds: Int = setting(
        1, at_least=1, doc="Length of each of these samples in seconds."
    )
    controller_quota_window_num: Int = setting(
        11,
        at_least=1,
        doc="Number of windows for which a client can save up `controller_mutation_rate` "
        "and use it at once.",
    )
    controller_quota_window_size_seconds: Int = setting(
        1, at_least=1, doc="Length of each of these windows in seconds."
    )
