"""Reading, processing and writing in transactions through TLS and SCRAM, by other people's
libraries, with the rules of docs/access.md and nothing else.
"""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from tests.interop.foreign.programs import (
    go_program,
    node_program,
    python_program,
    spring_program,
)
from tests.interop.least_rights.checks import (
    check_needed,
    check_suffice,
    each_mechanism,
    each_need,
    rows_of,
)
from tests.interop.least_rights.needs import is_denied
from tests.interop.least_rights.visitors import Client, Guarded, Names, ProgramResult
from tests.support.clients.login import Login
from tests.support.waiting import wait_until

Build = Callable[[str], list[str]]
Settings = Callable[[Login], str]


def properties(login: Login) -> str:
    return "".join(f"{name}={value}\n" for name, value in login.java().items())


def copier(build: Build, program: str, settings: Settings, row: str) -> Client:
    """One of the programs of tests/interop/foreign, until its first transaction or denial."""

    def work(login: Login, names: Names, directory: Path) -> ProgramResult:
        words = directory / "words"
        arguments = (login.bootstrap, names["GROUP"], names["SOURCE"], names["OUT"], "1000")
        with words.open("wb") as said:
            process = subprocess.Popen(
                [*build(program), *arguments, settings(login)],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
            )
        try:
            return until_told(process, words)
        finally:
            process.kill()
            process.wait()

    return Client(row, work, filled=["SOURCE"], empty=["OUT"], same={"ID": "GROUP"})


def until_told(process: subprocess.Popen[bytes], words: Path) -> ProgramResult:
    def said() -> str:
        return words.read_text(errors="replace")

    def is_done() -> bool:
        return "committed" in said().splitlines()

    wait_until(
        lambda: is_done() or is_denied(said()) or process.poll() is not None,
        lambda: f"neither done nor denied: {said()[-3_000:]}",
    )
    return ProgramResult(is_done(), said())


ROW: Final = "reads, processes and writes in transactions"
CLIENTS: Final = {
    "aiokafka": copier(python_program, "copy_with_aiokafka", Login.python_json, ROW),
    "librdkafka": copier(python_program, "copy_with_confluent", Login.librdkafka_json, ROW),
    "kafka-python": copier(python_program, "copy_with_kafka_python", Login.python_json, ROW),
    "franz-go": copier(go_program, "copy-with-franz", Login.go_json, ROW),
    "sarama": copier(go_program, "copy-with-sarama", Login.go_json, ROW),
    "kafkajs": copier(node_program, "copy-with-kafkajs", Login.kafkajs_json, ROW),
    "spring-kafka": copier(
        spring_program,
        "CopyWithSpring",
        properties,
        "the same with Spring, which numbers its transactional ids",
    ),
}

pytestmark = pytest.mark.long


@each_mechanism(CLIENTS)
def test_a_copier_needs_no_more_than_the_document_says(
    guarded: Guarded, name: str, mechanism: str, tmp_path: Path
) -> None:
    check_suffice(guarded, CLIENTS[name], mechanism, tmp_path)


@each_need(rows_of(CLIENTS))
def test_a_copier_is_denied_without_any_of_its_rules(
    guarded: Guarded, name: str, number: int, tmp_path: Path
) -> None:
    check_needed(guarded, CLIENTS[name], number, tmp_path)
