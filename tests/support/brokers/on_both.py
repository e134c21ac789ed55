"""A fixture of a module whose tests run with a Kafka and with a Kohort."""

from collections.abc import Iterator

import pytest

from tests.support.brokers.server_process import ServerProcess


def on_both(
    kafka: type[ServerProcess], kohort: type[ServerProcess], *, long: type[ServerProcess]
) -> object:
    """Return a fixture: a broker for all tests of the module, first of one class, then of the
    other. Those with the class `long` run in the long form only.
    """
    params = [
        pytest.param(kind, id=name, marks=[pytest.mark.long] if kind is long else [])
        for name, kind in (("kafka", kafka), ("kohort", kohort))
    ]

    @pytest.fixture(scope="module", params=params)
    def broker(
        request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
    ) -> Iterator[ServerProcess]:
        start: type[ServerProcess] = request.param
        with start(tmp_path_factory.mktemp("broker")) as started:
            yield started

    return broker
