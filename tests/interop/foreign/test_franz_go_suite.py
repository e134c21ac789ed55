"""franz-go's own tests of groups and of transactions: chains of members, each of which reads what
the one before wrote, while others come and go.
"""

import os
import subprocess

import pytest

from tests.interop.foreign.programs import go_tests

RECORDS = 200_000


@pytest.mark.long
@pytest.mark.parametrize("name", ["TestTxnEtl", "TestGroupETL"])
def test_its_own_tests_pass(name: str, bootstrap: str) -> None:
    program = go_tests("github.com/twmb/franz-go/pkg/kgo")
    own = {"KGO_SEEDS": bootstrap, "KGO_TEST_RF": "1", "KGO_TEST_RECORDS": f"{RECORDS}"}
    found = subprocess.run(
        [program, "-test.v", "-test.timeout=15m", f"-test.run=^{name}$"],
        env=os.environ | own,
        check=False,
        capture_output=True,
        text=True,
    )
    print(found.stdout[-4_000:])
    assert found.returncode == 0, found.stdout + found.stderr[-4_000:]
    # A chain of each kind of group has run, and not only that of a kind which there is not.
    assert f"--- PASS: {name}/cooperative-sticky/static" in found.stdout
