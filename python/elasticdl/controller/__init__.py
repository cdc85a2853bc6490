"""The controller of a cluster: decides the sizes of all jobs together."""
