"""Takes part in a group: the tasks and the thread around `kohort.client.core.group`."""
