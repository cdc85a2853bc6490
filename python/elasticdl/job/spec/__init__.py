"""The specification of a job: frozen, typed models."""
