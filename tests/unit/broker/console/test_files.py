"""The console's files: all that is asked for is there, and nothing is asked for elsewhere."""

import gzip
import re
from http import HTTPStatus

import pytest

from kohort.broker.console.pages import INDEX, STATIC, load_files
from kohort.broker.http.messages import HttpRequest
from tests.support.contrast import GRAPHICS, TEXT, palettes, ratio

FILES = load_files()
STYLE = FILES["console.css"].data.decode()


def test_every_file_is_served_and_every_module_that_is_imported_is_there() -> None:
    assert set(FILES) == {path.name for path in STATIC.iterdir()}
    for name, file in FILES.items():
        for wanted in re.findall(r'from "\./([^"]+)"', file.data.decode()):
            assert wanted in FILES, (name, wanted)
    for wanted in re.findall(r'/static/([\w.]+)"', FILES[INDEX].data.decode()):
        assert wanted in FILES


def test_all_files_together_are_small() -> None:
    assert sum(len(file.data) for file in FILES.values()) < 130_000


def test_nothing_is_made_of_text_and_nothing_comes_from_elsewhere() -> None:
    for name, file in FILES.items():
        text = file.data.decode().replace("http://www.w3.org/2000/svg", "")
        for word in ("innerHTML", "outerHTML", "insertAdjacent", "eval(", "document.write", "://"):
            assert word not in text, (name, word)
    index = FILES[INDEX].data.decode()
    assert not re.search(r"<script(?![^>]* src=)|<style| on\w+=| style=", index)


def test_a_browser_that_has_a_file_is_not_sent_it_again() -> None:
    file = FILES["app.js"]
    first = file.answer(HttpRequest("GET", "/static/app.js", "", ""))
    tag = dict(first.headers)["ETag"]
    again = file.answer(HttpRequest("GET", "/static/app.js", "", "", if_none_match=f'"x", {tag}'))
    other = file.answer(HttpRequest("GET", "/static/app.js", "", "", if_none_match='"x"'))
    assert (first.status, other.status) == (HTTPStatus.OK, HTTPStatus.OK)
    assert (again.status, again.body) == (HTTPStatus.NOT_MODIFIED, ())


def test_a_browser_that_can_unpack_gets_a_file_packed_and_is_not_sent_it_again() -> None:
    file = FILES["app.js"]
    request = HttpRequest("GET", "/static/app.js", "", "", accept_encoding="br;q=1.0, gzip")
    first = file.answer(request)
    headers = dict(first.headers)
    assert headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(b"".join(first.body)) == file.data
    assert len(file.packed) < len(file.data) / 2
    again = file.answer(request._replace(if_none_match=headers["ETag"]))
    assert again.status is HTTPStatus.NOT_MODIFIED
    # It is another form of the file: who cannot unpack is not told that he has it.
    plain = file.answer(HttpRequest("GET", "/static/app.js", "", "", if_none_match=headers["ETag"]))
    assert plain.status is HTTPStatus.OK
    assert "Content-Encoding" not in dict(plain.headers)
    assert dict(plain.headers)["Vary"] == headers["Vary"] == "Accept-Encoding"


@pytest.mark.parametrize("unwanted", ["", "identity", "gzip;q=0", "gzip; q=0.0, br", "xgzipped"])
def test_a_file_is_packed_only_for_a_client_that_wants_it(unwanted: str) -> None:
    file = FILES["app.js"]
    answer = file.answer(HttpRequest("GET", "/", "", "", accept_encoding=unwanted))
    assert answer.body == (file.data,)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_colours_have_the_contrast_of_wcag_aa(theme: str) -> None:
    palette = palettes(STYLE)[theme]
    for text in ("ink", "muted", "link", "lost", "stopped"):
        for on in ("ground", "raised"):
            assert ratio(palette[text], palette[on]) >= TEXT, (text, on)
    for mark in ("edge", "stopped", "count", "came", "left", "lost", "again", "other"):
        for on in ("ground", "raised"):
            assert ratio(palette[mark], palette[on]) >= GRAPHICS, (mark, on)


def test_each_colour_that_is_used_is_in_both_palettes_and_none_is_written_elsewhere() -> None:
    found = palettes(STYLE)
    assert set(re.findall(r"var\(--([\w-]+)\)", STYLE)) == set(found["light"])
    assert set(found["light"]) == set(found["dark"])
    rules = re.sub(r":root \{.*?\}", "", STYLE, flags=re.DOTALL)
    assert not re.findall(r"#[0-9a-fA-F]{3,8}\b|rgba?\(|opacity", rules)
