import random

import pytest

from kohort.broker.core.security.acls import (
    MATCH,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    Rule,
    RuleFilter,
    UnknownFilterError,
)
from kohort.broker.core.security.authorizer import Authorizer
from kohort.broker.core.security.session import ANONYMOUS, Principal, Session
from tests.unit.broker.core.security import oracle

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
READ, WRITE, DESCRIBE = Operation.READ, Operation.WRITE, Operation.DESCRIBE


def rule(
    who: str,
    operation: Operation,
    name: str,
    *,
    kind: ResourceType = TOPIC,
    prefixed: bool = False,
    deny: bool = False,
    host: str = "*",
) -> Rule:
    pattern = PatternType.PREFIXED if prefixed else PatternType.LITERAL
    permission = Permission.DENY if deny else Permission.ALLOW
    return Rule(kind, name, pattern, f"User:{who}", host, operation, permission)


def session(who: str = "alice", host: str = "10.0.0.1") -> Session:
    return Session(Principal("User", who), host, "PLAINTEXT")


def allows(
    authorizer: Authorizer, operation: Operation, name: str, *, who: str = "alice", host: str = ""
) -> bool:
    return authorizer.allows(session(who, host or "10.0.0.1"), operation, TOPIC, name)


def test_a_super_user_is_not_held_back_by_a_denial() -> None:
    authorizer = Authorizer(
        super_users=["User:root"], rules=[rule("*", Operation.ALL, "*", deny=True)]
    )
    assert allows(authorizer, READ, "t", who="root")
    assert not allows(authorizer, READ, "t")


def test_rules_for_everybody_are_for_clients_without_a_name_too() -> None:
    authorizer = Authorizer(rules=[rule("*", READ, "t")])
    assert authorizer.allows(Session(ANONYMOUS, "::1", "PLAINTEXT"), READ, TOPIC, "t")


def test_what_is_remembered_is_never_older_than_the_rules() -> None:
    authorizer, read = Authorizer(), rule("alice", READ, "t")
    for _ in range(3):
        assert not allows(authorizer, READ, "t")
        authorizer.change(added=[read])
        assert allows(authorizer, READ, "t")
        authorizer.change(removed=[read])


@pytest.mark.parametrize(
    "denial",
    [
        rule("alice", WRITE, "in-1", deny=True),
        rule("alice", Operation.ALL, "in-", prefixed=True, deny=True),
        rule("*", WRITE, "*", deny=True),
    ],
    ids=["the same", "a prefix", "everything"],
)
def test_no_topic_may_be_written_where_a_denial_covers_the_one_that_may(denial: Rule) -> None:
    authorizer = Authorizer(rules=[rule("alice", WRITE, "in-1")])
    assert authorizer.allows_some(session(), WRITE, TOPIC)
    authorizer.change(added=[denial])
    assert not authorizer.allows_some(session(), WRITE, TOPIC)


def test_one_of_several_rules_of_a_name_is_removed_and_the_denial_stays() -> None:
    read, denied = rule("alice", READ, "t"), rule("alice", WRITE, "t", deny=True)
    authorizer = Authorizer(rules=[read, denied, rule("alice", Operation.ALL, "*")])
    authorizer.change(removed=[read])
    assert not allows(authorizer, WRITE, "t")
    assert authorizer.found(RuleFilter(resource_name="t")) == [denied]


def test_long_names_that_are_alike_at_their_ends_are_told_apart() -> None:
    names = [f"{'n' * 400}{one}{'n' * 400}" for one in "abc"]
    rules = [rule("alice", READ, name) for name in names]
    authorizer = Authorizer(rules=rules[:2])
    assert [allows(authorizer, READ, name) for name in names] == [True, True, False]
    authorizer.change(removed=rules[:1])
    assert [allows(authorizer, READ, name) for name in names] == [False, True, False]
    authorizer.change(added=rules[2:], removed=rules[1:2])
    assert [allows(authorizer, READ, name) for name in names] == [False, False, True]
    authorizer.change(added=[rule("bob", READ, names[2])], removed=rules[2:])
    assert not allows(authorizer, READ, names[2])
    assert allows(authorizer, READ, names[2], who="bob")
    assert not allows(authorizer, READ, "n" * 801)


def test_a_filter_that_can_find_one_rule_says_which() -> None:
    dealer = RandomRules(5)
    for _ in range(2_000):
        one, other = dealer.rule(), dealer.rule()
        assert RuleFilter(*one).only() == one
        assert RuleFilter(*one).finds(other) is (one == other)
        parts: list[int | str | None] = list(one)
        place = dealer.random.randrange(len(parts))
        parts[place] = None if isinstance(parts[place], str) else dealer.random.choice((0, 1, 99))
        assert RuleFilter(*parts).only() is None  # type: ignore[arg-type]  # It is of that type.
    assert RuleFilter(*dealer.rule())._replace(pattern=MATCH).only() is None


def test_a_decision_names_its_rule() -> None:
    authorizer = Authorizer(rules=[rule("alice", READ, "in-", prefixed=True)])
    question = (Principal("User", "alice"), "::1", READ, TOPIC, "in-1")
    assert authorizer.explain(*question).reason == (
        'ALLOW User:alice READ on prefixed TOPIC "in-" from *'
    )


def test_with_rules_suspended_super_users_alone_may_do_anything() -> None:
    authorizer = Authorizer(
        super_users=["User:root"],
        allow_everyone_if_no_acl_found=True,
        rules=[rule("alice", Operation.ALL, "*")],
    )
    assert allows(authorizer, READ, "t")
    authorizer.suspend(is_suspended=True)
    assert not allows(authorizer, READ, "t")
    assert not authorizer.allows_some(session(), READ, TOPIC)
    root = session("root", "h")
    assert authorizer.allows(root, READ, TOPIC, "t")
    assert authorizer.allows_some(root, READ, TOPIC)
    authorizer.suspend(is_suspended=False)
    assert allows(authorizer, READ, "t")


class RandomRules:
    """Rules and questions over so few names that they often meet."""

    names = ("a", "ab", "abc", "abd", "b", "ba", "*", "*a")
    users = ("User:u", "User:v", "User:*")
    hosts = ("*", "h", "i")

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def rule(self) -> Rule:
        choose = self.random.choice
        return Rule(
            choose((TOPIC, GROUP)),
            choose(self.names),
            choose(list(PatternType)),
            choose(self.users),
            choose(self.hosts),
            choose(list(Operation)),
            choose((Permission.ALLOW, Permission.ALLOW, Permission.DENY)),
        )


def test_decisions_are_those_of_the_plain_list(long_form: bool) -> None:
    decisions, at_once = (1_000_000 if long_form else 10_000), 100
    for seed in range(decisions // at_once):
        dealer = RandomRules(seed)
        choose, otherwise = dealer.random.choice, seed % 2 == 0
        rules = list(dict.fromkeys(dealer.rule() for _ in range(dealer.random.randrange(12))))
        authorizer = Authorizer(rules=rules, allow_everyone_if_no_acl_found=otherwise)
        if rules and seed % 3 == 0:
            gone = dealer.random.sample(rules, len(rules) // 2)
            authorizer.change(removed=gone)
            rules = [one for one in rules if one not in gone]
        for _ in range(at_once):
            who, host = choose(("u", "v", "w")), choose(("h", "i", "j"))
            operation, kind = choose(list(Operation)), choose((TOPIC, GROUP))
            name = choose((*dealer.names[:6], "c", "abcd", "*ab"))
            asked = session(who, host)
            question = f"User:{who}", host, operation, kind
            expected = oracle.allows(rules, *question, name, otherwise=otherwise)
            assert authorizer.allows(asked, operation, kind, name) is expected, seed
            reasoned = authorizer.explain(asked.principal, host, operation, kind, name)
            assert reasoned.allowed is expected, seed
            if not otherwise:
                some = oracle.allows_some(rules, *question) or oracle.allows(
                    rules, *question, "hardcode"
                )
                assert authorizer.allows_some(asked, operation, kind) is some, seed


@pytest.mark.parametrize("name", ["resource_type", "pattern", "operation", "permission"])
def test_a_filter_with_a_number_without_a_meaning_is_refused(name: str) -> None:
    RuleFilter().check()
    with pytest.raises(UnknownFilterError):
        RuleFilter(**{name: 99}).check()  # type: ignore[arg-type]  # Not the text fields.
