"""The consumer's logic without sockets, threads and tasks; the current time is an argument."""
