"""Which page a path leads to, and what it hands on."""

from urllib.parse import quote

import pytest

from kohort.broker.http.messages import BadRequestError, HttpRequest, HttpResponse
from kohort.broker.http.routes import Query, Routes


async def _fixed(_: HttpRequest) -> HttpResponse:
    raise AssertionError


async def _one(_: HttpRequest) -> HttpResponse:
    raise AssertionError


async def _below(_: HttpRequest) -> HttpResponse:
    raise AssertionError


ROUTES = Routes({"/things": _fixed, "/things/{thing}": _one, "/things/{thing}/parts": _below})


def test_a_fixed_path_is_found_as_it_is() -> None:
    assert ROUTES.find("/things") == (_fixed, ())


@pytest.mark.parametrize(
    "thing", ["a", "a b", "a/b", "%", "ü", "..", "%2F", "things", "a\0b", "\n", "x" * 8_000]
)
def test_a_name_in_braces_matches_anything_that_is_percent_encoded(thing: str) -> None:
    encoded = quote(thing, safe="")
    assert ROUTES.find(f"/things/{encoded}") == (_one, (thing,))
    assert ROUTES.find(f"/things/{encoded}/parts") == (_below, (thing,))


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "things",
        "/things/",
        "//things",
        "/things//parts",
        "/things/a/",
        "/things/a/b",
        "/things/a/parts/",
        "/Things",
        "/things%2Fa",
        "/" * 16_000,
        "*",
        "http://host/things",
    ],
)
def test_other_paths_lead_nowhere(path: str) -> None:
    assert ROUTES.find(path) is None


@pytest.mark.parametrize("part", ["%", "%4", "%zz", "%ff", "%c3", "%ed%a0%80", "a%"])
def test_what_is_not_percent_encoded_utf_8_is_refused(part: str) -> None:
    with pytest.raises(BadRequestError):
        ROUTES.find(f"/things/{part}")


def test_a_query_is_taken_apart() -> None:
    query = Query("after=a%26b+c&limit=7", "limit", "after")
    assert query.text("after") == "a&b c"
    assert query.number("limit", 5, at_most=10) == 7
    assert Query("", "limit").number("limit", 5, at_most=10) == 5
    assert Query("", "limit").text("limit") is None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("limt=1", "limit, after"),
        ("limit=1&limit=2", "twice"),
        ("after=%ff", "UTF-8"),
        ("limit", "1 to 10"),
        ("limit=", "1 to 10"),
        ("limit=0", "1 to 10"),
        ("limit=11", "1 to 10"),
        ("limit=-1", "1 to 10"),
        ("limit=1e1", "1 to 10"),
        ("limit=%D9%A1", "1 to 10"),
        ("limit=" + "9" * 10_000, "1 to 10"),
        ("&".join("a=b" for _ in range(5_000)), "limit, after"),
    ],
)
def test_a_query_that_means_nothing_is_refused_and_told_what_would(text: str, told: str) -> None:
    with pytest.raises(BadRequestError, match=told):
        Query(text, "limit", "after").number("limit", 5, at_most=10)
