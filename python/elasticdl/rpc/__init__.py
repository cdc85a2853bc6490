"""Channels, servers and typed clients over gRPC."""
