"""Members of one group through all that goes wrong between them and their coordinator."""

import pytest

from tests.simulation.consumers import ConsumersLife


@pytest.mark.parametrize("strategy", ["range", "sticky", "cooperative-sticky"])
@pytest.mark.parametrize("seed", range(2))
def test_no_partition_has_two_owners_in_a_generation_and_all_settle_when_left_alone(
    seed: int, strategy: str
) -> None:
    ConsumersLife(str(seed), strategy).run(30)
