"""The job's specification, names and status documents."""
