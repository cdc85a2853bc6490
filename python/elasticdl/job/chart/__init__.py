"""The chart's own keys, beside the job's specification."""
