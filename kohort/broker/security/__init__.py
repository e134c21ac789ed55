"""Security at run time: keys, certificates, users, limits and access rules."""
