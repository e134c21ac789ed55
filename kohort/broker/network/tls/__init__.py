"""TLS between a transport and a connection."""
