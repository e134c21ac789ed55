"""Rules that map subjects to principals, applied by Kafka's own mapper and by ours."""

import base64
import random
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from kohort.broker.core.security.mapping_rules import MappingRules, NoRuleError, RulesError
from tests.support.processes import java_env

PROGRAM = Path(__file__).parents[1] / "java" / "MappingRules.java"
PAIRS = 10_000
PIECES = (
    *("CN=(.*?)", "CN=([a-z]+)", "CN=(\\w+)", "CN=([^,]+)", "(?<who>[A-Z]+)", "CN=alice", "^", "$"),
    *(
        ",OU=(.*?)",
        ",OU=(eng|it)",
        ".*",
        "(,.*)?",
        ",O=(\\S+)",
        "\\/",
        "\\d*",
        "[a-zA-Z0-9.]+",
        "(",
    ),
)
REPLACEMENTS = ("$1", "$2", "$3", "$1$2", "$0", "x", "\\/", "-", "@", "", "$", "$9", "$10", "Ab")
SUBJECTS = ("CN=alice", "CN=Bob", "CN=a/b", "CN=J\u00f6rg M\u00fcller", "CN=c7.x", "OU=none", "")
REST = ("", ",OU=eng", ",OU=it,O=Acme", ",O=Acme\\, Inc.", ",OU=Eng,L=M\u00fcnchen,C=DE")


def rule(chance: random.Random) -> str:
    kind = chance.random()
    if kind < 0.15:
        return "DEFAULT"
    if kind < 0.18:
        return chance.choice(["", "default", "RULE:", "RULE:a", "RULE:a/b", "RULE:a/b/X", "x"])
    pattern = "".join(chance.choice(PIECES) for _ in range(chance.randint(1, 4)))
    replacement = "".join(chance.choice(REPLACEMENTS) for _ in range(chance.randint(0, 3)))
    return f"RULE:{pattern}/{replacement}/{chance.choice(['', '', 'L', 'U'])}"


def rules(chance: random.Random) -> str:
    separator = chance.choice([",", ", ", " , "])
    return separator.join(rule(chance) for _ in range(chance.randint(1, 3)))


def ours(text: str, subject: str) -> str:
    try:
        return "=" + MappingRules(text).name_for(subject)
    except RulesError:
        return "bad"
    except NoRuleError:
        return "none"


@pytest.mark.long
def test_subjects_become_the_principals_that_kafka_makes_of_them() -> None:
    chance = random.Random(11)
    pairs = [(rules(chance), chance.choice(SUBJECTS) + chance.choice(REST)) for _ in range(PAIRS)]
    asked = "\n".join(
        " ".join(base64.b64encode(text.encode()).decode() for text in pair) for pair in pairs
    )
    command = [java_env.java(), "-cp", java_env.classpath(), str(PROGRAM)]
    done = subprocess.run(command, input=asked, capture_output=True, text=True, check=True)
    theirs = [
        "=" + base64.b64decode(line[1:]).decode() if line.startswith("=") else line.split()[0]
        for line in done.stdout.splitlines()
    ]
    # Kafka closes the connection of a client for which a replacement cannot be filled in.
    theirs = ["none" if one == "fault" else one for one in theirs]
    found = [ours(*pair) for pair in pairs]
    different = [
        (pair, kafka, own)
        for pair, kafka, own in zip(pairs, theirs, found, strict=True)
        if kafka != own
    ]
    assert not different, "\n".join(map(str, [len(different), *different[:20]]))
    kinds = Counter(one if one in {"bad", "none"} else "name" for one in found)
    assert min(kinds.values()) > PAIRS // 20, kinds
