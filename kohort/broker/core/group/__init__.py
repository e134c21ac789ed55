"""The rules of consumer groups, pure: see :mod:`kohort.broker.core.group.classic.group`."""
