"""The broker's HTTP ports: metrics, health checks and JSON pages."""
