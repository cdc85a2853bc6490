"""Classic place of ElasticDL's own callbacks (elasticdl/callbacks.py).

Owns nothing. For user modules alone.
"""

from elasticdl.callbacks import LearningRateScheduler, MaxStepsStopping

__all__ = ["LearningRateScheduler", "MaxStepsStopping"]
