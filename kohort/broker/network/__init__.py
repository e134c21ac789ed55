"""The edge: sockets, connections, frames."""
