"""The declared schemas: of the history's events, and of all tables of the analysis."""
