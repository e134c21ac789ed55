"""Topics at run time: the shells around storage that handle time, tasks and waiting requests."""
