"""The rules of a member: when to join, what answers mean, and who gets which partition."""
