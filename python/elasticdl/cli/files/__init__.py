"""Verbs about files alone, which know no job that runs."""
