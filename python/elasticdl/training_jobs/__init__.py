"""The controller of TrainingJobs: a job as an object of Kubernetes. See `main`."""
