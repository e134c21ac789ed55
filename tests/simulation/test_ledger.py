"""The ledger judges a request when it has been dealt with, not before."""

from kohort.groups.events import TriggerKind
from tests.simulation.network import Weather
from tests.simulation.process import Traits
from tests.simulation.world import World

TRAITS = Traits(
    group="g",
    client_id="client",
    ip="10.0.0.1",
    instance=None,
    version=3,
    says_reasons=False,
    is_cooperative=False,
    offers_both=False,
    session_ms=10_000,
    rebalance_ms=20_000,
    heartbeat_ms=3_000,
    slowness_ms=0,
)


def test_a_join_that_comes_with_a_commit_of_its_group_causes_what_it_causes() -> None:
    """Commits are gathered to the end of the turn, and what comes meanwhile waits behind them."""
    world = World("x", weather=Weather(delay_ms_max=0, splits=0.0), commits=0.0, keep_ledger=True)

    async def run() -> None:
        await world.start_broker()
        await world.create_topic()
        world.commit_from_outside("warm-up")
        await world.pass_time(1_000)
        for _ in range(3):
            world.commit_from_outside("g")
        process = world.new_process(TRAITS)
        await world.pass_time(30_000)
        assert process.generation == 1
        await world.stop_broker()

    world.run(run())
    assert world.ledger is not None
    assert world.ledger.rebalances == {TriggerKind.MEMBER_ADDED: 1}
    assert (world.ledger.recorded, world.ledger.misses) == (1, 0)
