"""Pure rules: no I/O, no clock, no tasks. Time comes in as integer milliseconds."""
