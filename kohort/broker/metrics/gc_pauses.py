"""Pauses of the whole process by the garbage collector, by generation."""

import gc
import time
from typing import Final

from kohort.broker.metrics.tally import HistogramTally

PAUSE_BOUNDS_S: Final = (0.001, 0.005, 0.02, 0.1, 0.5)

GENERATIONS: Final = 3


class GcPauseMeter:
    """Measures garbage collections from `start` until `stop`."""

    def __init__(self) -> None:
        self.pauses = [HistogramTally(PAUSE_BOUNDS_S) for _ in range(GENERATIONS)]
        """Histograms by generation, the youngest first."""
        self._began_at = 0.0

    def start(self) -> None:
        gc.callbacks.append(self._on_collection)

    def stop(self) -> None:
        if self._on_collection in gc.callbacks:
            gc.callbacks.remove(self._on_collection)

    def _on_collection(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._began_at = time.perf_counter()
        else:
            self.pauses[info["generation"]].observe(time.perf_counter() - self._began_at)
