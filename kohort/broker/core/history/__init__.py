"""Why groups rebalanced: a pure fold of their events into records, and what the records say."""
