"""The pictures of the documents are small, made by a make target, and said in words as well."""

import re
import struct
import zlib
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from scripts.png import squeezed

ROOT = Path(__file__).parents[3]
PICTURES = sorted((ROOT / "docs" / "pictures").iterdir())
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SHOWN = re.compile(r"!\[([^\]]*)\]\(([^)\s]+)\)")
SIZE_MAX = 200_000

every_picture = pytest.mark.parametrize("picture", PICTURES, ids=[one.name for one in PICTURES])


@every_picture
def test_a_picture_is_shown_somewhere_and_said_in_words(picture: Path) -> None:
    said = [
        words
        for document in DOCUMENTS
        for words, target in SHOWN.findall(document.read_text(encoding="utf-8"))
        if (document.parent / target).resolve() == picture
    ]
    assert said
    assert all(len(words.split()) > 8 for words in said)


@every_picture
def test_a_picture_is_small_and_of_nothing_but_itself(picture: Path) -> None:
    content = picture.read_bytes()
    assert len(content) < SIZE_MAX
    if picture.suffix == ".png":
        assert content.startswith(b"\x89PNG")
        return
    drawn = ET.fromstring(content)
    assert drawn.get("viewBox")
    # No typeface and no style from the network, and nothing that runs.
    assert set(re.findall(rb"https?://[^\"' )]+", content)) == {b"http://www.w3.org/2000/svg"}
    assert not [one for one in drawn.iter() if one.tag.endswith("script")]


def test_the_readme_shows_the_console_before_it_tells() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    first_screen = "\n".join(text.splitlines()[:12])
    assert "docs/pictures/console-timeline.png" in first_screen
    assert "docs/pictures/groups-timeline.svg" in text


def test_a_make_target_makes_them() -> None:
    recipe = (ROOT / "Makefile").read_text().partition("\npictures:")[2].partition("\n\n")[0]
    made = "".join(
        Path(ROOT, *one.split(".")).with_suffix(".py").read_text()
        for one in re.findall(r"-m (scripts\.\w+)", recipe)
    )
    assert [one.name for one in PICTURES if one.stem not in made] == []


def test_a_screenshot_is_squeezed_without_loss() -> None:
    # A row for each filter of PNG, written out by hand: none, left, above, mean, Paeth.
    rows = [bytes(range(7 * at, 7 * at + 12)) for at in range(5)]
    lines, above = [], bytes(12)
    for kind, row in enumerate(rows):
        guesses = []
        for place, up in enumerate(above):
            left, corner = (row[place - 3], above[place - 3]) if place > 2 else (0, 0)
            nearest = min((left, up, corner), key=lambda one: abs(one - (left + up - corner)))
            guesses.append((0, left, up, (left + up) // 2, nearest)[kind])
        rest = ((value - guess) % 256 for value, guess in zip(row, guesses, strict=True))
        lines.append(bytes([kind, *rest]))
        above = row
    head = struct.pack(">IIBBBBB", 4, 5, 8, 2, 0, 0, 0)
    packed = zlib.compress(b"".join(lines))
    made = [(b"IHDR", head), (b"IDAT", packed[:9]), (b"IDAT", packed[9:]), (b"IEND", b"")]
    found = squeezed(b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(*one) for one in made))
    plain = zlib.compress(b"".join(b"\0" + row for row in rows), 9)
    expected = [(b"IHDR", head), (b"IDAT", plain), (b"IEND", b"")]
    assert found == b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(*one) for one in expected)
    with pytest.raises(ValueError, match="not a PNG"):
        squeezed(b"GIF89a")


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
