"""Settings that say who may do what; the rules themselves are made while the broker runs."""

from typing import Final

from kohort.broker.config.settings import Boolean, Int, Password, Settings, String, setting

AUTHORIZERS: Final = ("", "org.apache.kafka.metadata.authorizer.StandardAuthorizer", "kohort")


def parse_super_users(text: str) -> tuple[str, ...]:
    """The principals of `super.users`, as texts."""
    return tuple(one.strip() for one in text.split(";") if one.strip())


def super_users_problem(text: str) -> str | None:
    """What is wrong with a list of principals."""
    for one in parse_super_users(text):
        if ":" not in one:
            return f"{one} has no type, as in User:{one}"
    return None


class AccessSettings(Settings):
    """Access."""

    authorizer_class_name: String = setting(
        "",
        one_of=AUTHORIZERS,
        doc="Empty: everybody may do everything. Either of the others: only what the rules allow "
        "that kafka-acls.sh or `kohort acl` make. Both names mean the same.",
    )
    super_users: Password = setting(
        "",
        check=super_users_problem,
        doc="Principals that may do everything, before any rule, separated by semicolons: "
        "`User:admin;User:CN=ops,OU=it`.",
    )
    allow_everyone_if_no_acl_found: Boolean = setting(
        False,
        doc="Whether everybody may do with a resource what they like for as long as no rule's "
        "pattern matches its name, not even a rule about somebody else.",
    )


class QuotaSettings(Settings):
    """Quotas."""

    quota_window_num: Int = setting(
        11, at_least=1, doc="Samples that are kept of what a client has used lately."
    )
    quota_window_size_seconds: Int = setting(
        1, at_least=1, doc="Seconds that each of these samples is of."
    )
