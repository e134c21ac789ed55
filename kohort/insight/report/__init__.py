"""The report: one self-contained HTML page about one group, or the groups of a lake."""
