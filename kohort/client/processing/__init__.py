"""`Consumer.run`: handlers side by side, retries, dead letters, commits of what is done."""
