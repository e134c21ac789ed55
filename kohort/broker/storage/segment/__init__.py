"""One file of records with its indexes."""
