"""Properties files are read as Java reads them."""

import pytest

from kohort.formats.properties import Property, parse_properties


def entries(text: str) -> list[tuple[str, str]]:
    return [(entry.name, entry.value) for entry in parse_properties(text)]


def test_a_name_ends_at_equals_colon_or_blank() -> None:
    text = "a=1\nb = 2\nc: 3\nd 4\ne\t=5\nf==6\ng=:7\nlone\n"
    assert entries(text) == [
        ("a", "1"),
        ("b", "2"),
        ("c", "3"),
        ("d", "4"),
        ("e", "5"),
        ("f", "=6"),
        ("g", ":7"),
        ("lone", ""),
    ]


def test_comments_and_blank_lines_are_left_out() -> None:
    assert entries("# a=1\n  ! b=2\n\n   \nc=3 # no comment") == [("c", "3 # no comment")]


def test_a_line_that_ends_with_a_backslash_goes_on() -> None:
    assert entries("a=one,\\\n   two,\\\n# three\nb=c:\\\\\nd=1\\") == [
        ("a", "one,two,# three"),
        ("b", "c:\\"),
        ("d", "1"),
    ]


def test_escapes_stand_for_characters() -> None:
    assert entries(r"a\=b\ c=\t\u00e9\x") == [("a=b c", "\té" + "x")]


def test_an_entry_knows_the_line_it_begins_at() -> None:
    assert list(parse_properties("#\n\na=1\\\n2\nb=3\n")) == [
        Property("a", "12", 3),
        Property("b", "3", 5),
    ]


def test_a_windows_file_is_read_like_any_other() -> None:
    assert entries("a=1\r\nb=2\\\r\n3\r\n") == [("a", "1"), ("b", "23")]


@pytest.mark.parametrize("mark", ["\u2028", "\x85", "\x0b", "\x1c"])
def test_a_line_ends_where_java_ends_it(mark: str) -> None:
    (one, two) = parse_properties(f"password=a{mark}b\r\nuser=c\r")
    assert (one.value, two.value) == (f"a{mark}b", "c")
    assert (one.line, two.line) == (1, 2)
