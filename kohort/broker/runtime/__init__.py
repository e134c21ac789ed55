"""The runtime of the broker: clocks, deferred results, work in slices, timers and memory."""
