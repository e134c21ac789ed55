"""Settings shaped like those of public projects start a broker if they start Kafka."""

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from kohort.broker.config import ConfigError, load


class Case(NamedTuple):
    name: str
    verdict: str
    settings: tuple[tuple[str, str], ...]
    """Names and values; the last one of a name counts."""


def cases() -> Iterator[Case]:
    blocks: dict[str, list[str]] = {}

    def expanded(text: str) -> Iterator[str]:
        for word in shlex.split(text):
            yield from blocks[word] if word.startswith("@") else [word]

    text = (Path(__file__).parent / "public_settings.txt").read_text(encoding="utf-8")
    for line in text.splitlines():
        if line.startswith("@"):
            name, _, words = line.partition(" ")
            blocks[name] = list(expanded(words))
        elif line and not line.startswith("#"):
            name, verdict, words = line.split("|", 2)
            pairs = (word.partition("=")[::2] for word in expanded(words))
            yield Case(name, verdict, tuple(pairs))


CASES = tuple(cases())


def test_the_file_has_a_hundred_projects() -> None:
    assert len({case.name for case in CASES}) == len(CASES) >= 100


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_settings_of_a_public_project_start_a_broker_as_they_start_kafka(
    case: Case, tmp_path: Path
) -> None:
    file = tmp_path / "server.properties"
    variables = {name: value for name, value in case.settings if name.isupper()}
    lines = [
        f"{name}={value}\n"
        for name, value in case.settings
        if not name.isupper() and not name.startswith("--")
    ]
    overrides = [
        f"{name.removeprefix('--')}={value}"
        for name, value in case.settings
        if name.startswith("--")
    ]
    file.write_text("".join(lines), encoding="utf-8")
    file.chmod(0o600)
    if case.verdict == "starts":
        loaded = load(file=file, overrides=overrides, environment=variables)
        assert "horse" not in "".join(loaded.warnings)
    else:
        with pytest.raises(ConfigError) as refused:
            load(file=file, overrides=overrides, environment=variables)
        assert case.verdict.partition(":")[2] in str(refused.value)
        assert "horse" not in str(refused.value)
