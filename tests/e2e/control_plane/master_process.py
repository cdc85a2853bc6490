"""A master of its own process, on the API server that a kubeconfig names.

As `elasticdl.master.main` wires it in a pod, but with a user's access. Writes a line of
figures each second, for tests of its cost: CPU seconds, MiB, calls of the API so far.

    python master_process.py KUBECONFIG NAMESPACE JOB FOLDER [RUN]
"""

import asyncio
import json
import sys
import time
from pathlib import Path

import psutil
from elasticdl.errors import ExitCode
from elasticdl.job.context import set_up_logging
from elasticdl.job.names import JobDir
from elasticdl.job.values.file import load_values
from elasticdl.job.words import JobState
from elasticdl.kube.api import ApiServer
from elasticdl.master import live_edits
from elasticdl.master.assembly import assemble
from elasticdl.master.tasks.ledger import Ledger
from elasticdl.runner.kubernetes.cluster import Cluster
from elasticdl.running import RunningClock


async def figures(path: Path, api: ApiServer) -> None:
    process = psutil.Process()
    with path.open("a") as file:
        while True:
            line = {
                "time": time.time(),
                "cpu": time.process_time(),
                "mib": process.memory_info().rss / 2**20,
                "calls": api.calls,
            }
            file.write(json.dumps(line) + "\n")
            file.flush()
            await asyncio.sleep(1.0)


async def main(
    kubeconfig: str, namespace: str, job: str, folder: str, run: str = "1"
) -> None:
    job_dir = JobDir(Path(folder))
    api = ApiServer.from_kubeconfig(kubeconfig)
    cluster = await Cluster.connect(
        api, namespace=namespace, config_map=f"elasticdl-{job}", job=job, run=int(run)
    )
    if int(run) > 1:
        await cluster.config.forget_stop()
    job_dir.spec_file.write_text(cluster.config.current.job)
    clock = RunningClock()
    ledger = Ledger.open(job_dir.journal_dir, now=clock(), wait_seconds=5.0)
    master = assemble(
        load_values(job_dir.spec_file).job,
        job_dir,
        ledger,
        lambda: cluster.platform,
        clock=clock,
    )
    end = master.job.end
    master.loop.grant(cluster.config.current.grant)

    async def edit(text: str) -> None:
        master.loop.edit(live_edits.parse(text, "the ConfigMap"))

    following = asyncio.create_task(
        cluster.follow(
            job_dir.spec_file,
            known=cluster.config.current.job,
            on_edit=edit,
            on_stop=lambda why: end(JobState.STOPPED, why, ExitCode.STOPPED),
            on_deleted=lambda: end(JobState.STOPPED, "deleted", ExitCode.STOPPED),
            on_grant=master.loop.grant,
        )
    )
    measuring = asyncio.create_task(figures(job_dir.root / "figures.jsonl", api))
    await master.run()
    await cluster.finish()
    for task in (following, measuring):
        task.cancel()
    await asyncio.gather(following, measuring, return_exceptions=True)
    await cluster.close()
    ledger.close()


if __name__ == "__main__":
    set_up_logging("master-0", "info")
    asyncio.run(main(*sys.argv[1:]))
