"""The consumer's rules: pure, with the time passed in. Sockets, threads and tasks are elsewhere."""
