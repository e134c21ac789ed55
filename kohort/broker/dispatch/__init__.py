"""The way of a frame to its handler and back: decoding, routing, encoding, and error responses."""
