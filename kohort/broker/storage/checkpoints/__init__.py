"""Small checked files beside the log."""
