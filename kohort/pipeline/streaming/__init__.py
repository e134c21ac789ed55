"""What is shared by jobs that follow a topic."""
