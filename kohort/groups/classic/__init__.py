"""The classic group protocol: members join and sync, a leader assigns."""
