"""Subjects as text, and what they are mapped to."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.broker.core.security.certificate import (
    SUBJECT_BYTES_MAX,
    DerError,
    dotted,
    fields_of,
    has_nul,
    subject_of,
)
from kohort.broker.core.security.mapping_rules import MappingRules, NoRuleError, RulesError
from tests.support.network.der import PRINTABLE, UTF8, certificate

CN, C, L, ST, O, OU = (f"2.5.4.{number}" for number in (3, 6, 7, 8, 10, 11))  # noqa: E741 - their names.
DC, UID = "0.9.2342.19200300.100.1.25", "0.9.2342.19200300.100.1.1"
EMAIL = "1.2.840.113549.1.9.1"
IA5 = 0x16


@pytest.mark.parametrize(
    ("attributes", "text"),
    [
        (
            [
                (C, PRINTABLE, "DE"),
                (ST, UTF8, "Bayern"),
                (L, UTF8, "Muenchen"),
                (O, UTF8, "Acme, Inc."),
                (OU, UTF8, "eng"),
                (CN, UTF8, "alice"),
            ],
            "CN=alice,OU=eng,O=Acme\\, Inc.,L=Muenchen,ST=Bayern,C=DE",
        ),
        (
            [
                (DC, IA5, "org"),
                (DC, IA5, "acme"),
                (UID, UTF8, "u7"),
                (CN, UTF8, "bob"),
                (EMAIL, IA5, "bob@acme.org"),
            ],
            "1.2.840.113549.1.9.1=#160c626f624061636d652e6f7267,CN=bob,UID=u7,DC=acme,DC=org",
        ),
        ([(CN, UTF8, 'Z"q<x>;#'), (O, UTF8, " lead")], 'O=\\ lead,CN=Z\\"q\\<x\\>\\;\\#'),
        ([(CN, UTF8, "Jörg Müller"), (O, UTF8, "Ünï")], "O=Ünï,CN=Jörg Müller"),
        ([(CN, UTF8, "   "), (O, UTF8, "end ")], "O=end\\ ,CN=\\ \\ \\ "),
        ([(CN, UTF8, "nul\0here")], "CN=nul\\00here"),
        ([], ""),
    ],
)
def test_a_subject_is_written_as_java_writes_it(
    attributes: list[tuple[str, int, str]], text: str
) -> None:
    assert subject_of(certificate(attributes)) == text


@pytest.mark.parametrize(
    ("value", "has"),
    [("nul\0here", True), ("\0", True), ("\\\0", True), ("\\00", False), ("00", False)],
)
def test_a_nul_in_a_subject_is_told_from_what_looks_like_one(value: str, has: bool) -> None:
    assert has_nul(subject_of(certificate([(O, UTF8, "acme"), (CN, UTF8, value)]))) == has


def test_a_subject_that_is_too_long_is_refused() -> None:
    with pytest.raises(DerError, match="above 4096"):
        subject_of(certificate([(CN, UTF8, "x" * SUBJECT_BYTES_MAX)]))


def test_a_number_in_an_identifier_that_python_would_not_write_is_refused() -> None:
    for byte_count in (2_200, 4_000):
        with pytest.raises(DerError, match="object identifier"):
            dotted(memoryview(b"\xff" * byte_count + b"\1"))


@given(st.integers(0, 400), st.binary(max_size=4))
def test_damage_is_refused_and_no_fault(position: int, damage: bytes) -> None:
    whole = certificate([(CN, UTF8, "alice"), (O, UTF8, "acme")])
    spoiled = whole[:position] + damage + whole[position + len(damage) :]
    for read in (subject_of, fields_of):
        try:
            read(spoiled)
        except DerError:
            continue


def test_the_end_of_validity_and_other_names_are_read() -> None:
    names = b"\x82\x03a.b", b"\x82\1c"
    fields = fields_of(
        certificate([(CN, UTF8, "alice")], alternatives=(b"\x82\x03a.b", b"\x82\1c"))
    )
    assert fields.not_after == "20301231235959Z"
    assert fields.alternative_names == set(names)


@pytest.mark.parametrize(
    ("rules", "subject", "name"),
    [
        ("DEFAULT", "CN=alice,OU=eng", "CN=alice,OU=eng"),
        (r"RULE:.*/-/U", "CN=alice", "--"),
        (r"RULE:CN=(.*?)/<$1>/", "CN=alice,OU=x", "<>alice,OU=x"),
        (r"RULE:CN=(\w+)/$1/,RULE:CN=(.*)/other-$1/", "CN=Jörg", "other-Jörg"),
        (r"RULE:CN=(?<who>[a-z]+)/${who}-\$1-$12/", "CN=bob", "bob-$1-bob2"),
        (r"RULE:^CN=([a-z]+),OU=([a-z]+),.*$/$1@$2/U", "CN=alice,OU=eng,O=Acme", "ALICE@ENG"),
        (r"RULE:^CN=(.*?),.*$/$1/L, DEFAULT", "CN=Alice,OU=x", "alice"),
        (r"RULE:^CN=(.*?),.*$/$1/L, DEFAULT", "CN=Alice", "CN=Alice"),
        (r"RULE:CN=(.*?)\/(.*)/$2-$1-$7/", "CN=a/b", "b-a-$7"),
        (r"RULE:CN=(?<who>[a-z]+)/$1/", "CN=bob", "bob"),
        (r"RULE:OU=.*/x/,RULE:CN=(\w+)(,.*)?/$1$2/", "CN=bob", "bob"),
    ],
)
def test_the_first_rule_that_matches_all_of_a_subject_counts(
    rules: str, subject: str, name: str
) -> None:
    assert MappingRules(rules).name_for(subject) == name


@pytest.mark.parametrize(
    "rules", ["RULE:CN=a/b/", "", ",", "RULE:CN=ab/$1/", "RULE:CN=(.*)/$/", "RULE:CN=(.*)/$8$9/"]
)
def test_without_a_rule_there_is_no_principal(rules: str) -> None:
    with pytest.raises(NoRuleError):
        MappingRules(rules).name_for("CN=ab")


@pytest.mark.parametrize(
    "rules", ["nonsense", "RULE:(/x/", "RULE:a", "RULE:a/b/X", "DEFAULT,nonsense"]
)
def test_rules_that_cannot_be_read_are_refused(rules: str) -> None:
    with pytest.raises(RulesError, match=re.escape(rules[:3]) + "|cannot be read|not a rule"):
        MappingRules(rules)
