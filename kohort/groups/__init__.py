"""The rules of consumer groups, pure: see :mod:`kohort.groups.group`."""
