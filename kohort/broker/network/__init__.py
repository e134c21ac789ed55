"""The network layer: sockets, connections, frames."""
