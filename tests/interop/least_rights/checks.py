"""What every client is put to: its work with its rules, and without each of them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import pytest

from tests.interop.least_rights.needs import NEEDS
from tests.interop.least_rights.visitors import MECHANISMS, Client, Guarded


def check_suffice(guarded: Guarded, client: Client, mechanism: str, directory: Path) -> None:
    """With its rules the client does its work, and gets no word of what it may not."""
    outcome = guarded.attempt(client, directory, mechanism=mechanism)
    assert outcome.is_done, outcome.said


def check_needed(guarded: Guarded, client: Client, number: int, directory: Path) -> None:
    """Without that rule it does not, and says what the document says."""
    need = client.needs[number]
    outcome = guarded.attempt(client, directory, without=need)
    assert not outcome.is_done, f"{need.rule} is not needed"
    assert need.is_told(outcome.said), f"not {need.without}, but: {outcome.said}"


class HasRow(Protocol):
    """What does the work of a row of the document."""

    @property
    def row(self) -> str:
        """The row's name."""


def each_mechanism(clients: Mapping[str, Client]) -> pytest.MarkDecorator:
    """The arguments `name` and `mechanism`."""
    names = [(name, mechanism) for name in clients for mechanism in MECHANISMS]
    return pytest.mark.parametrize(("name", "mechanism"), names)


def each_need(rows: Mapping[str, str]) -> pytest.MarkDecorator:
    """The arguments `name` and `number`, of one of the rules in the client's own row."""
    numbers = [(name, number) for name, row in rows.items() for number in range(len(NEEDS[row]))]
    return pytest.mark.parametrize(("name", "number"), numbers)


def rows_of(clients: Mapping[str, HasRow]) -> dict[str, str]:
    """Their rows."""
    return {name: client.row for name, client in clients.items()}
