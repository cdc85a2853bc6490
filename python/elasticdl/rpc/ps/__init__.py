"""The PS service: client, wire format, memory shared on one machine."""
