"""The worker: leases tasks, trains, evaluates, predicts."""
