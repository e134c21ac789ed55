"""The document's table and the tests are about the same clients."""

from pathlib import Path

from tests.interop.least_rights.needs import DENIED, NEEDS, is_denied

HERE = Path(__file__).parent
SOURCES = [*HERE.glob("test_*.py"), HERE.parents[1] / "pipeline" / "test_least_rights.py"]


def test_every_client_of_the_table_is_run() -> None:
    tests = "".join(path.read_text() for path in SOURCES)
    assert len(NEEDS) > 20
    assert [client for client in NEEDS if f'"{client}"' not in tests] == []


def test_each_error_of_the_table_is_known_by_its_name() -> None:
    errors = {
        word.strip("`,")
        for needs in NEEDS.values()
        for need in needs
        for word in need.without.split()
        if word.startswith("`")
    }
    assert errors <= DENIED.keys()
    assert all(is_denied(error) for error in errors)
