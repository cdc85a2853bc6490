"""The whole protocol in one process, decided by one seed: see docs/simulation.md."""
