"""Transactions: what one transactional id may do, and when its transactions end. Pure rules."""
