"""Expressions that an Apache Kafka 4.4.0 accepts, refuses and matches."""

import pytest

from kohort.groups.consumer.regexes import LENGTH_MAX, InvalidRegexError, check_regex, match_steps
from kohort.groups.steps import at_once

NAMES = ["rx", "rx-a", "a", "b", "ab", "(b)", "é", "__consumer_offsets"]


@pytest.mark.parametrize(
    ("regex", "matched"),
    [
        ("rx", {"rx"}),
        ("rx.*", {"rx", "rx-a"}),
        ("(?i)RX-A", {"rx-a"}),
        ("(?<n>a)", {"a"}),
        ("(?P<n>a)", {"a"}),
        (r"\Q(b)\E", {"(b)"}),
        (r"\p{L}+", {"rx", "a", "b", "ab", "é"}),
        ("[[:alpha:]]", {"a", "b"}),
        (r"\Aa.*b\z", {"ab"}),
        ("a$|^b", {"a", "b"}),
        ("a{1000}", set()),
        ("[a_].*", {"a", "ab"}),
        ("__.*", {"__consumer_offsets"}),
        ("(^__.*)", {"__consumer_offsets"}),
    ],
)
def test_an_expression_matches_whole_names(regex: str, matched: set[str]) -> None:
    check_regex(regex)
    assert at_once(match_steps([regex], NAMES)) == {regex: matched}


@pytest.mark.parametrize(
    "regex",
    [
        *("a(?=b)", "(?!a)b", r"(a)\1", "a++", "(?x)a", "a{1001}", "(", "a" * (LENGTH_MAX + 1)),
        r"\p{L}{100}",  # It takes too much memory.
    ],
)
def test_an_invalid_expression_is_refused_with_the_reason(
    regex: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InvalidRegexError) as raised:
        check_regex(regex)
    begin = f"SubscribedTopicRegex `{regex[:LENGTH_MAX]}` is not a valid regular expression: "
    text = str(raised.value)
    assert text.startswith(begin)
    assert text.endswith(".")
    assert len(text) > len(begin) + 1
    assert capfd.readouterr().err == ""
    assert at_once(match_steps([regex, "a"], NAMES)) == {regex: set(), "a": {"a"}}


def test_a_long_name_is_matched_in_a_step_of_its_own() -> None:
    steps = match_steps(["(?:.?){900}c"], ["ab" * 124] * 10)
    assert sum(1 for _ in steps) >= 10
