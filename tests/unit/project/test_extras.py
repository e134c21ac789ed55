"""What `make` installs of an extra is what pip would."""

import tomllib

import pytest

from scripts.extra_requirements import PROJECT, requirements

EXTRAS = tomllib.loads(PROJECT.read_text())["project"]["optional-dependencies"]


def test_extras_that_name_others_need_what_those_need() -> None:
    extras = {"a": ["kohort[b, c]", "one>=1"], "b": ["two"], "c": ["kohort[b]", "three[x]"]}
    assert list(requirements(["a"], extras)) == ["two", "two", "three[x]", "one>=1"]
    with pytest.raises(KeyError):
        list(requirements(["d"], extras))


@pytest.mark.parametrize("extra", EXTRAS)
def test_each_extra_comes_down_to_packages_of_others(extra: str) -> None:
    found = list(requirements([extra], EXTRAS))
    assert found
    assert not [one for one in found if one.startswith("kohort")]
