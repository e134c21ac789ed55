"""The path of a request to its handler and back: decoding, routing, encoding, errors."""
