"""Prefixes of names, beside the plain list of them."""

import random
from functools import reduce
from operator import or_

import pytest

from kohort.broker.core.security.rule_index import Prefixes


def made_of(*prefixes: str) -> Prefixes:
    made = Prefixes()
    for one in prefixes:
        made[one] = 1
    return made


def test_what_is_removed_is_found_no_more_until_it_is_there_again() -> None:
    names = ["a" * length for length in range(1, 64)]
    prefixes = made_of(*names)
    assert sorted(prefixes.matching(names[-1])) == names
    for name in names[::2]:
        prefixes[name] = 0
    assert sorted(prefixes.matching(names[-1])) == names[1::2]
    prefixes[names[0]] = 1
    assert sorted(prefixes.matching(names[-1])) == [names[0], *names[1::2]]


@pytest.mark.parametrize("letters", ["ab", "abcdefghijk"])
@pytest.mark.parametrize("longest", [10, 60])
def test_they_are_those_of_the_plain_list(letters: str, longest: int) -> None:
    chance = random.Random(longest)

    def text() -> str:
        return "".join(chance.choice(letters) for _ in range(chance.randrange(1, longest)))

    prefixes, there = Prefixes(), dict[str, int]()
    for turn in range(60):
        for _ in range(chance.choice((1, 5, 100))):
            one = text()
            if one not in there:
                prefixes[one] = there[one] = 1 << chance.randrange(32)
        for one in chance.sample(sorted(there), chance.choice((0, 1, len(there) * 3 // 4))):
            prefixes[one] = 0
            del there[one]
        for _ in range(20):
            name = (chance.choice(sorted(there)) if there and turn % 2 else "") + text()
            expected = sorted(one for one in there if name.startswith(one))
            assert sorted(prefixes.matching(name)) == expected
            united = reduce(or_, (there[one] for one in expected), 0)
            assert prefixes.united(name, 0) == united
            enough = chance.randrange(1 << 32)
            some = prefixes.united(name, enough)
            assert some | united == united
            assert some == united if not united & enough else some & enough
    assert dict(prefixes) == there
    assert len(prefixes) == len(there)
