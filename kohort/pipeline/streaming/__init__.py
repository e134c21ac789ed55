"""Code shared by jobs that follow a topic."""
