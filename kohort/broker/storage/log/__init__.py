"""The log of one partition: segments in order, opened, appended to, read and flushed."""
