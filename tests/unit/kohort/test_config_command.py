"""`kohort config` and `kohort completion`: what needs no broker."""

import json
import subprocess
from pathlib import Path

import pytest

from kohort.cli import COMMANDS, main

Printed = pytest.CaptureFixture[str]


def test_settings_are_found_by_words(capsys: Printed) -> None:
    assert main(["config", "list", "session", "timeout", "max"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "group.max.session.timeout.ms=1800000" in lines
    assert not any(line.startswith("num.partitions") for line in lines)


def test_configs_of_topics_are_listed_for_programs(capsys: Printed) -> None:
    assert main(["config", "list", "--topics", "cleanup", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["settings"]
    policy = next(one for one in found if one["name"] == "cleanup.policy")
    assert policy["default"] == "delete"


def test_a_word_that_no_setting_has_ends_with_1(capsys: Printed) -> None:
    assert main(["config", "list", "nonsensical"]) == 1
    assert "no setting matches nonsensical" in capsys.readouterr().err


def test_a_file_is_checked_without_a_start(
    tmp_path: Path, capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_NUM_PARTITIONS", "6")
    file = tmp_path / "server.properties"
    file.write_text("log.retention.hours=5\nlog.dirs=/data\nzookeeper.connect=x\n")
    assert main(["config", "check", "--config", str(file), "--override", "num.partition=1"]) == 1
    assert "did you mean num.partitions?" in capsys.readouterr().err
    assert main(["config", "check", "--config", str(file)]) == 0
    out = capsys.readouterr().out
    assert f"log.retention.hours=5  ({file}:1)" in out
    assert "num.partitions=6  (environment variable KAFKA_NUM_PARTITIONS)" in out
    assert "zookeeper.connect: accepted, but has no effect here" in out
    assert out.endswith("the settings are valid\n")


def test_settings_of_listeners_are_told_with_the_others_and_secrets_are_not(
    tmp_path: Path, capsys: Printed
) -> None:
    file = tmp_path / "server.properties"
    login = 'PlainLoginModule required user_alice="horse";'
    file.write_text(
        "listeners=EXT://localhost:9092\nlistener.security.protocol.map=EXT:SASL_PLAINTEXT\n"
        "listener.name.EXT.sasl.enabled.mechanisms=PLAIN\n"
        f"listener.name.ext.plain.sasl.jaas.config={login}\n"
    )
    assert main(["config", "check", "--config", str(file)]) == 0
    out = capsys.readouterr().out
    assert f"listener.name.ext.sasl.enabled.mechanisms=PLAIN  ({file}:3)" in out
    assert f"listener.name.ext.plain.sasl.jaas.config=[hidden]  ({file}:4)" in out
    assert main(["config", "check", "--config", str(file), "--json"]) == 0
    told = capsys.readouterr().out
    assert json.loads(told)["set"]["listener.name.ext.sasl.enabled.mechanisms"] == "PLAIN"
    assert "horse" not in out + told
    file.write_text("listener.name.plaintext.max.connection=5\n")
    assert main(["config", "check", "--config", str(file)]) == 1
    assert f"{file}:1: unknown listener setting listener.name.plain" in capsys.readouterr().err


def test_every_problem_of_a_file_is_told(tmp_path: Path, capsys: Printed) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=none\nlog.retention.hours=soon\n")
    assert main(["config", "check", "--config", str(file), "--json"]) == 1
    assert len(json.loads(capsys.readouterr().out)["problems"]) == 2


@pytest.mark.parametrize("shell", ["bash", "zsh", "tcsh", "fish"])
def test_every_command_is_in_the_script_of_a_shell(shell: str, capsys: Printed) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert all(name in script for name in COMMANDS)


def test_bash_completes_commands_and_their_options(tmp_path: Path, capsys: Printed) -> None:
    main(["completion", "bash"])
    script = tmp_path / "kohort.bash"
    script.write_text(capsys.readouterr().out)

    def completed(*words: str) -> list[str]:
        asked = (
            f"source {script}; COMP_WORDS=({' '.join(words)} ''); COMP_CWORD={len(words)}; "
            '_shtab_kohort; printf "%s\\n" "${COMPREPLY[@]}"'
        )
        ran = subprocess.run(["bash", "-c", asked], check=True, capture_output=True, text=True)
        return ran.stdout.split()

    assert set(COMMANDS) <= set(completed("kohort"))
    assert {"list", "create", "alter"} <= set(completed("kohort", "topics"))
