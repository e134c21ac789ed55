"""Rules for transactional ids: which requests are valid, and when transactions end. No I/O."""
