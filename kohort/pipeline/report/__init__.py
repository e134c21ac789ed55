"""One self-contained page about the groups of a lake: its contents, its plots, its template."""
