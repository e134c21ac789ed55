"""The colours of the page, by daylight and in the dark: ratios of WCAG 2.2, level AA."""

import re

import pytest

from kohort.insight.report.ownership import COLOURS
from kohort.insight.report.page import style
from tests.support.contrast import GRAPHICS, TEXT, palettes, ratio


def test_the_ratio_is_that_of_the_standard() -> None:
    assert ratio("#000000", "#ffffff") == pytest.approx(21)
    assert ratio("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_can_be_read_on_whatever_it_stands(theme: str) -> None:
    palette = palettes(style())[theme]
    pairs = [(text, on) for text in ("ink", "muted", "link") for on in ("ground", "raised")]
    pairs += [("choice", "ground"), ("choice", "chosen"), ("ink", "chosen")]
    pairs += [("letter", f"owner-{number}") for number in range(COLOURS)]
    for text, on in pairs:
        assert ratio(palette[text], palette[on]) >= TEXT, (text, on)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_row_with_the_star_stands_out(theme: str) -> None:
    palette = palettes(style())[theme]
    assert ratio(palette["chosen"], palette["raised"]) >= 1.15
    assert ratio(palette["choice"], palette["chosen"]) >= GRAPHICS


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_what_a_plot_says_can_be_seen(theme: str) -> None:
    palette = palettes(style())[theme]
    marks = ["stopped", "count", "choice", "edge"]
    marks += ["came", "left", "lost", "again", "other"]
    marks += [f"owner-{number}" for number in range(COLOURS)]
    for mark in marks:
        for on in ("ground", "raised"):
            assert ratio(palette[mark], palette[on]) >= GRAPHICS, (mark, on)


def test_no_colour_is_written_outside_the_palette() -> None:
    rules = re.sub(r":root \{.*?\}", "", style(), flags=re.DOTALL)
    assert not re.findall(r"#[0-9a-fA-F]{3,8}\b|rgba?\(|opacity", rules)


def test_each_colour_that_is_named_is_in_both_palettes() -> None:
    found = palettes(style())
    used = set(re.findall(r"var\(--([\w-]+)\)", style()))
    assert used == set(found["light"])
    assert set(found["light"]) == set(found["dark"])
