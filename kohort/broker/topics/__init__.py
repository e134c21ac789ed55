"""Topics while the broker runs: the shells around storage that know time, tasks and waiters."""
