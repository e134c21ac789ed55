"""Patterns of clients: they mean what Python's own mean, and cost no more than their length."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.broker.handlers.transaction_listing import PATTERN_BYTES_MAX
from kohort.groups.consumer.regexes import compile_re2


def matches(pattern: str, text: str) -> bool:
    return compile_re2(pattern, PATTERN_BYTES_MAX).fullmatch(text) is not None


@pytest.mark.parametrize(
    "pattern",
    [
        "abc",
        "a.c",
        "a|b|",
        "(ab)+c?",
        "(?:a|b)*c",
        "[a-c]+",
        "[^a-c]*",
        r"[\w-]+",
        r"[]a]+",
        r"[a\]-]*",
        r"\d{2,3}x",
        "a{2}",
        "a{2,}",
        "a{0,2}?b",
        "a{0}",
        r"\.\*\[",
        "^a.*b$",
        "(^a|b$)+",
        r"\w+\s\S\D\W",
        "((a?)*)*b",
        "",
        "()",
        "(|a)b",
        r"a\tb",
        r"[\t\n]",
    ],
)
def test_what_is_understood_means_the_same(pattern: str) -> None:
    ours, theirs = compile_re2(pattern, PATTERN_BYTES_MAX), re.compile(pattern)
    alphabet = "ab1_-.*[] \t\nc]x"
    texts = ["", "abc", "aab", "ab\t", "a1 b-.", "12x", "123x", "1234x", "abab", "ababc", ".*["]
    texts += [a + b + c for a in alphabet for b in alphabet for c in ("", "b", "\t")]
    for text in texts:
        # A dollar of Python's fits before a last newline, which RE2's does not.
        if not text.endswith("\n"):
            assert bool(ours.fullmatch(text)) is bool(theirs.fullmatch(text)), (pattern, text)


@given(
    st.recursive(
        st.sampled_from(["a", "b", ".", "[ab]", "[^a]", r"\w", "(a|b)"]),
        lambda inner: st.one_of(
            st.tuples(inner, inner).map("".join),
            inner.map(lambda one: f"(?:{one})*"),
            inner.map(lambda one: f"(?:{one})?"),
            inner.map(lambda one: f"({one}){{1,2}}"),
            st.tuples(inner, inner).map(lambda two: f"(?:{two[0]}|{two[1]})"),
        ),
        max_leaves=6,
    ),
    st.text("abc", max_size=8),
)
def test_any_pattern_means_the_same(pattern: str, text: str) -> None:
    assert matches(pattern, text) is bool(re.fullmatch(pattern, text))


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("(?i)a", "A"),
        ("(?P<name>a)", "a"),
        (r"\p{L}+", "äß"),
        (r"a\b", "a"),
        ("[[:alpha:]]", "z"),
        ("a{x}", "a{x}"),
        ("ab.", "abä"),
    ],
)
def test_what_kafka_understands_is_understood(pattern: str, text: str) -> None:
    assert matches(pattern, text)
    assert not matches(pattern, text + "!")


@pytest.mark.parametrize(
    "pattern",
    [
        "(",
        ")",
        "a)",
        "(a",
        "[a",
        "[",
        "*a",
        "a**",
        "a{3,2}",
        "a{1001}",
        "[b-a]",
        "a\\",
        "(?=a)",
        r"(a)\1",
        "(((a{100}){100}){100})",
        "(((((){1000}){1000}){1000}){1000})",
        "x" * 1_001,
    ],
)
def test_what_is_not_understood_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError):
        compile_re2(pattern, PATTERN_BYTES_MAX)


def test_no_pattern_takes_long() -> None:
    # Each of these takes an engine that backtracks longer than there is time.
    for pattern in ("(a+)+$", "(a|a)*b", "(a*)*b", "(?:a?){40}a{40}c"):
        assert not matches(pattern, "a" * 200 + "!")
