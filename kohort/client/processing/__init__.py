"""`Consumer.run`: concurrent handlers, retries, dead letters, commits of handled records."""
