"""The log of one partition: opening, appending to, reading and flushing its segments."""
