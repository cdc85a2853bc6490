"""Jobs as functions: launch, find, watch, change and stop them.

Here are those of this machine, in `client.cluster` those of a cluster; both kinds are
a `JobHandle`.

Called by the CLI and by notebooks:

    job = client.launch(load_values(Path("values/digits.yaml")), environ=os.environ)
    report = job.wait().report

Must not print, nor read the environment.
"""

from elasticdl.client.handle import JobHandle, JobView
from elasticdl.client.local.job import LocalJob, find, list_jobs
from elasticdl.client.local.launcher import Launcher, LaunchOutcome, launch
from elasticdl.client.scaling import Scaled, Scaling
from elasticdl.job.folder import Condition

__all__ = [
    "Condition",
    "JobHandle",
    "JobView",
    "LaunchOutcome",
    "Launcher",
    "LocalJob",
    "Scaled",
    "Scaling",
    "find",
    "launch",
    "list_jobs",
]
