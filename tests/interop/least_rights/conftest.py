"""A Kohort and a real Kafka that ask everybody who he is, and what he may do."""

from collections.abc import Iterator

import pytest

from tests.interop.least_rights.visitors import Guarded, guarded_broker


@pytest.fixture(scope="module", params=["kohort", pytest.param("kafka", marks=pytest.mark.long)])
def guarded(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Guarded]:
    """Each of the two in turn."""
    with guarded_broker(request.param, tmp_path_factory.mktemp("guarded")) as guarded:
        yield guarded
