"""The report: one self-contained page about the groups of a lake, with its plots and template."""
