"""Keys, certificates and users while the broker runs, and who is let in by them."""
