"""Numbers beside dots: readable however close the dots are."""

import random

from kohort.insight.report.settings_plot import HEIGHT, WIDTH_OF_DIGIT, Dot, place

ROOM = (600.0, 250.0)


def test_a_dot_that_stands_alone_has_its_number_close_to_it() -> None:
    (label,) = place(["1"], [Dot(300, 100, 5)], [], ROOM)
    assert not label.is_far
    assert abs(label.x - 300) < 20
    assert abs(label.y - 100) < 20


def test_numbers_of_dots_in_one_corner_cover_neither_each_other_nor_a_dot() -> None:
    chance = random.Random(6)
    dots = [Dot(chance.uniform(10, 60), chance.uniform(10, 40), 6) for _ in range(8)]
    recorded = [Dot(40, 60, 6)]
    texts = [str(number) for number in range(1, 9)]
    labels = place(texts, dots, recorded, ROOM)
    for index, one in enumerate(labels):
        for other in labels[:index]:
            assert abs(one.x - other.x) >= WIDTH_OF_DIGIT or abs(one.y - other.y) >= HEIGHT
        for dot in [*dots, *recorded]:
            assert abs(one.x - dot.x) >= dot.radius or abs(one.y - dot.y) >= dot.radius
    assert any(label.is_far for label in labels)


def test_numbers_stay_within_the_plot() -> None:
    corners = [Dot(0, 0, 5), Dot(600, 0, 5), Dot(0, 250, 5), Dot(600, 250, 5)]
    for label in place(["10", "11", "12", "13"], corners, [], ROOM):
        assert WIDTH_OF_DIGIT <= label.x <= ROOM[0] - WIDTH_OF_DIGIT
        assert HEIGHT / 2 <= label.y <= ROOM[1] - HEIGHT / 2
