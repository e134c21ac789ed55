"""Topics at run time: adds timers, tasks and waiting requests to the storage."""
