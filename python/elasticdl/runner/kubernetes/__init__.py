"""Replicas as pods of a cluster, and a job's specification and status as ConfigMaps."""
