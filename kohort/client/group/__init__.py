"""Group membership: the tasks and the thread around `kohort.client.core.group`."""
