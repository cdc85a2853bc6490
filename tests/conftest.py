"""Settings for all tests."""

from hypothesis import HealthCheck, settings

# The machine may be slow and shared: examples are bounded by number, not by time.
settings.register_profile(
    "default",
    deadline=None,
    max_examples=50,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=True,
)
settings.load_profile("default")
