"""Encrypted calls: certificates, identities, who may call what."""
