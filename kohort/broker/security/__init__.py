"""Authentication while the broker runs: keys, certificates, users, limits and access rules."""
