"""A group of workers from the master: who is in it, and what it is shown as."""
