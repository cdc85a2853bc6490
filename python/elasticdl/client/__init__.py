"""Jobs on this machine as functions: launch, find, watch, change and stop them.

Called by the CLI and by notebooks:

    job = client.launch(load_values(Path("values/digits.yaml")), environ=os.environ)
    report = job.wait().report

Must not print, nor read the environment.
"""

from elasticdl.client.handle import JobHandle, JobView, find, list_jobs
from elasticdl.client.launcher import Launcher, Outcome, launch
from elasticdl.job.folder import Condition

__all__ = [
    "Condition",
    "JobHandle",
    "JobView",
    "Launcher",
    "Outcome",
    "find",
    "launch",
    "list_jobs",
]
