"""Where groups are written down: the topic of offsets, and who lies in which partition."""
