"""Lives of logs, one after another, each from a seed."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Protocol


class Life(Protocol):
    @property
    def counts(self) -> Mapping[str, int]:
        """How often what has happened to it."""

    def step(self) -> object:
        """Let the next thing happen."""

    def finish(self) -> object:
        """Check what is left at its end."""


def lived(begin: Callable[[int], Life], *, lives: int, steps: int) -> Counter[str]:
    """Live so many, from the seeds 0, 1 and on; how often what has happened. A failure has the
    seed in its notes.
    """
    counts: Counter[str] = Counter()
    for seed in range(lives):
        life = begin(seed)
        try:
            for _ in range(steps):
                life.step()
            life.finish()
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
        counts.update(life.counts)
    return counts
