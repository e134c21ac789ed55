"""The rules of consumer groups, pure: see :mod:`broker.core.group.classic_group`."""
