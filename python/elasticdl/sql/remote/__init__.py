"""Statements whose rows and models are on a cluster's volume.

A statement is then three parts, of which only the job is here already: the job's
`data.prepare` reads the source and writes shards, statistics and module (`steps`), and
a short pod behind the job puts the answer in place. `flow` is their order as the
user's own process sees it; `messages` is what both sides say to each other. Nothing of
it needs the source to be reached from the user's machine. Called by `cli.sql`. Must
not know how a pod is made.
"""
