"""One history from its begin to its end, with all the disks that it could have left behind."""

from collections import Counter

from tests.simulation.transactions.states import Examiner
from tests.simulation.transactions.world import World

SLICE_MS = 200


def examine_history(
    seed: int, *, is_forced: bool, states: int, losses: int = 4, density: float = 0.2
) -> Counter[str]:
    """Live through so many states, or a few more; what happened how often.

    Raises:
        AssertionError: something that must not be; a note tells what repeats it.
    """
    world = World(seed, is_forced=is_forced, losses=losses, density=density)
    examiner = Examiner(is_forced=is_forced)
    counts: Counter[str] = Counter()
    number = None
    try:
        world.begin()
        while counts["states"] < states:
            world.run(SLICE_MS)
            for state in world.take_states():
                number = state.number
                examiner.examine(state, world.ledger)
                counts["states"] += 1
                counts["states without power"] += state.has_lost_power
            number = None
        world.settle()
    except BaseException as error:
        where = "" if number is None else f", state {number}"
        error.add_note(f"seed {seed}, is_forced={is_forced}, losses={losses}, {density=}{where}")
        raise
    finally:
        world.close()
        examiner.close()
    counts["states that differ"] = examiner.count
    return counts + world.counts + world.ledger.counts
