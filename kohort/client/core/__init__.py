"""The consumer's rules: pure, with time passed in. Sockets, threads and tasks are around them."""
