"""Names of principals from certificates as Java makes them, with everything odd in them."""

import base64
import random
import subprocess
from pathlib import Path

import pytest

from kohort.broker.core.security.certificate import subject_of
from tests.support.network.der import Attribute, certificate, name
from tests.support.processes import java_env

PROGRAM = Path(__file__).parents[1] / "java" / "Subjects.java"
SUBJECTS = 10_000
KINDS = (
    *(f"2.5.4.{number}" for number in (3, 5, 6, 7, 8, 9, 10, 11, 42)),
    "0.9.2342.19200300.100.1.25",
    "0.9.2342.19200300.100.1.1",
    "1.2.840.113549.1.9.1",
)
ENCODINGS = {0x0C: "utf-8", 0x13: "ascii", 0x16: "ascii", 0x14: "latin-1", 0x1E: "utf-16-be"}
"""By the tags of values; the first is what certificates have now."""
CHARACTERS = "abcXYZ019 ,+\"\\<>;#=/'()-.:?\r\n\t\0äöü€@_&*!$%[]{}|^~`"


def subject(chance: random.Random) -> list[Attribute]:
    found: list[Attribute] = []
    for _ in range(chance.randint(0, 4)):
        tag = chance.choice([0x0C, 0x0C, *ENCODINGS])
        text = "".join(chance.choice(CHARACTERS) for _ in range(chance.choice([0, 1, 2, 3, 8])))
        found.append((chance.choice(KINDS), tag, text.encode(ENCODINGS[tag], "ignore")))
    return found


@pytest.mark.long
def test_subjects_are_called_what_java_calls_them() -> None:
    chance = random.Random(7)
    subjects = [subject(chance) for _ in range(SUBJECTS)]
    asked = "\n".join(base64.b64encode(name(one)).decode() for one in subjects)
    command = [java_env.java(), str(PROGRAM)]
    done = subprocess.run(command, input=asked, capture_output=True, text=True, check=True)
    theirs = [base64.b64decode(line).decode() for line in done.stdout.split("\n")[:-1]]
    assert [subject_of(certificate(one)) for one in subjects] == theirs
