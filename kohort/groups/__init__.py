"""The rules of consumer groups, without I/O or a clock: see :mod:`kohort.groups.group`."""
