"""A cluster of many jobs on a simulated clock, with the master's own rules in it."""
