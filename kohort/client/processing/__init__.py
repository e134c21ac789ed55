"""`Consumer.run`: concurrent handlers, retries, dead letters, commits of what is handled."""
