"""One client connection: frames in, requests executed in order, responses out."""
