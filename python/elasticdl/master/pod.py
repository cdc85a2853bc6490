"""A master in a pod: its job's folder, its ConfigMap, and how it leaves.

Owns what a launcher does for a master on one machine: the folder is prepared, wishes to
stop are passed on, and the batch Job is told whether to start another one.
Called by `master.main`. Must not decide about PS and workers.

A signal does not mean here that the job shall stop: a drained node or a deleted pod
takes the master alone, and the next one goes on with what still runs. The job is
stopped by an annotation of its ConfigMap, or by the end of that.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from elasticdl.beneath import read_text
from elasticdl.errors import (
    FINAL_EXITS,
    ElasticDLError,
    ExitCode,
    JobError,
    JournalError,
    PlatformError,
    SpecError,
    SupersededError,
)
from elasticdl.files import write_whole
from elasticdl.job import folder, names
from elasticdl.job.context import PodPlace, RoleContext, set_up_logging
from elasticdl.job.folder import JobLock
from elasticdl.job.in_force import in_force
from elasticdl.job.names import JobDir, Role
from elasticdl.job.spec.job import JobSpec
from elasticdl.job.status import JobReport, JobStatus
from elasticdl.job.values.document import ValuesFile
from elasticdl.job.values.file import load_values
from elasticdl.job.version_skew import skew
from elasticdl.job.words import JobState
from elasticdl.kube.api import ApiServer
from elasticdl.master import live_edits
from elasticdl.master.calls.enrolling import JobAuthority, authority_of
from elasticdl.master.happenings import JobEntered
from elasticdl.master.job_state import JobEnding
from elasticdl.master.master import Master
from elasticdl.master.patience import END_SECONDS, patiently, within
from elasticdl.master.platform_defaults import check as check_platform
from elasticdl.master.serving import Start, serve
from elasticdl.master.telling.notices import notices
from elasticdl.master.telling.sentences import decisions_of
from elasticdl.runner.kubernetes.cluster import Cluster
from elasticdl.runner.kubernetes.pods import mounted_below

log = logging.getLogger(__name__)

# The lock of a master whose node was lost takes a network file system about a minute
# and a half to give up. One that still runs there, out of everybody's reach, keeps it:
# the next one goes on without, and the journal keeps the old one from writing.
_LOCK_SECONDS = 120.0
# As long as a running master waits by default; the file that says is not read yet.
_STORAGE_SECONDS = 1800.0
_UNREADABLE = "?"
# With these a master ends whose job has failed for good.
_FINAL = (*FINAL_EXITS, ExitCode.JOB_FAILED, ExitCode.POD_JOB_FAILED)


@dataclass(frozen=True)
class Prepared:
    """A job's folder, ready for its master."""

    spec: JobSpec
    launched: bool  # by the ConfigMap's first master; else this one takes over
    lock: JobLock | None  # none where a master of this job that is lost has it
    text: str  # of the values file that it was made of


def prepare(
    config_dir: Path, job_dir: JobDir, *, uid: str, lock_seconds: float = _LOCK_SECONDS
) -> Prepared:
    """Prepare the job's folder for a master of the ConfigMap `uid` and its run.

    The same ConfigMap in the same run goes on. Another one goes on with an unfinished
    job too; what a finished job or an evaluation has left is moved aside.

    Raises SpecError for a wrong values file, JobError when another kind of job is
    unfinished there, PlatformError when another job's master still runs, JournalError
    when the folder cannot be written.
    """
    source = config_dir / names.KEY_JOB
    try:
        lock = _lock(job_dir, uid, lock_seconds)
    except OSError as error:
        raise _not_writable(job_dir, error) from error
    try:
        # What it says when it is read again is an edit, if it is something else.
        text = source.read_text(encoding="utf-8", errors="replace")
        if _owner(job_dir) in (uid, _UNREADABLE):
            return Prepared(_after_edits(source, job_dir), False, lock, text)
        spec = _begin(load_values(source), job_dir)
        return Prepared(spec, True, lock, text)
    except OSError as error:
        _release(lock)
        raise _not_writable(job_dir, error) from error
    except BaseException:
        _release(lock)
        raise


def _lock(job_dir: JobDir, uid: str, seconds: float) -> JobLock | None:
    """Lock the folder, or inherit the lock of the same job's last master.

    That one may prepare nothing any more, as it has begun, and the journal refuses
    what it writes after the next one has begun.
    """
    try:
        return JobLock(job_dir, wait_seconds=seconds)
    except JobError as error:
        if _owner(job_dir) != uid:
            raise PlatformError(f"{error}; the next try may find it free") from error
        log.warning("%s, by the master before this one, which is taken over", error)
        return None


def _release(lock: JobLock | None) -> None:
    if lock is not None:
        lock.release()


def _after_edits(source: Path, job_dir: JobDir) -> JobSpec:
    """Return the specification in the file; a wrong edit ends no running job."""
    try:
        return load_values(source).job
    except SpecError as error:
        log.error("the edited values file is refused, nothing changes: %s", error)
        return live_edits.by_the_file(in_force(job_dir), None)


def _begin(values: ValuesFile, job_dir: JobDir) -> JobSpec:
    condition = folder.inspect(job_dir)
    _, notice = folder.make_room(job_dir, values.job, condition, restart=False)
    if notice:
        log.info("job %s: %s", values.job.name, notice)
    folder.fill(job_dir, values)
    return values.job


def take_over(job_dir: JobDir, uid: str) -> None:
    """Note the owner of the folder, after the journal says that the job has begun.

    Until then the next master of this ConfigMap prepares it once more.
    """
    try:
        write_whole(job_dir.owner_file, uid, durable=True)
    except OSError as error:
        raise _not_writable(job_dir, error) from error


def make_named(templates: Mapping[Role, str], job_dir: JobDir) -> None:
    """Make the folders of other jobs that this one's pods are given, if they lack.

    The kubelet would make them, as root: the master of such a job that begins later
    could not write into its own folder.
    """
    top = job_dir.root.parents[2]
    for role, template in templates.items():
        with contextlib.suppress(OSError, PlatformError):  # its pod says why
            for folder in mounted_below(template, role, top.name):
                (top / folder).mkdir(parents=True, exist_ok=True)


def _not_writable(job_dir: JobDir, error: OSError) -> JournalError:
    return JournalError(
        f"{job_dir.root}: the job's folder cannot be prepared ({error.strerror}); its "
        "volume has to be writable for the user of the pods, and have room"
    )


def _owner(job_dir: JobDir) -> str:
    """Return the noted owner, "" for none. Raises OSError if it cannot be read.

    A living job that is taken for another one would lose all its replicas.
    """
    try:
        # Empty after a crash of the machine; somebody had begun the job.
        return read_text(job_dir.owner_file, root=job_dir.root) or _UNREADABLE
    except FileNotFoundError:
        return ""


def exit_code_of(ending: JobEnding | None) -> ExitCode:
    """Return the exit code for the batch Job: 0, a final code, or HANDED_OVER.

    A job that was stopped is done as well; one that failed is never tried again.
    """
    if ending is None:
        return ExitCode.HANDED_OVER
    if ending.state is not JobState.FAILED:
        return ExitCode.OK
    code = ending.exit_code
    return code if code in FINAL_EXITS else ExitCode.POD_JOB_FAILED


async def serve_in_pod(context: RoleContext, api: ApiServer) -> ExitCode:
    """Run the job, or continue it. Raises ElasticDLError."""
    place = context.cluster
    if place is None:
        raise PlatformError("this master runs in no pod; give ELASTICDL_PLATFORM")
    authority = await authority_of(context)
    cluster = await Cluster.connect(
        api,
        namespace=place.namespace,
        config_map=place.config_map,
        job=place.job,
        priority_classes=place.priority_classes,
        run=place.run,
        enrol=authority.enrolment if authority else lambda _: {},
    )
    try:
        ending = await _run(context, place, cluster, authority)
        if ending is not None:
            await cluster.finish()
        code = exit_code_of(ending)
        if code in _FINAL:
            await cluster.batch_job.allow_no_more()
        return code
    except PlatformError:
        raise  # the next master may have more luck
    except SupersededError:
        raise  # the next master has the job already, and shows how it goes
    except ElasticDLError as error:
        await _show_failure(cluster, place.job, error)
        if error.exit_code in _FINAL:
            await cluster.batch_job.allow_no_more()
        raise
    finally:
        await cluster.close()


async def _run(
    context: RoleContext,
    place: PodPlace,
    cluster: Cluster,
    authority: JobAuthority | None,
) -> JobEnding | None:
    wrong = skew(place.chart_version) if place.chart_version else ""
    if wrong:
        raise SpecError(f"the chart does not fit the image of the master: {wrong}")
    uid = place.owner_mark(cluster.config.current.uid)
    prepared = await asyncio.get_running_loop().run_in_executor(
        None,
        lambda: patiently(
            lambda: prepare(place.config_dir, context.job_dir, uid=uid),
            seconds=_STORAGE_SECONDS,
        ),
    )
    # Not to `log.file`: whoever writes the values file would name a file in the folder
    # of another job, and a master sees all of them.
    set_up_logging(context.name, str(prepared.spec.log.level))
    await asyncio.get_running_loop().run_in_executor(
        None, make_named, cluster.config.current.templates, context.job_dir
    )
    if prepared.launched and place.run > 1:
        await cluster.config.forget_stop()  # it was for the run before
    following: list[asyncio.Task[None]] = []
    served: list[Master] = []

    def attend(master: Master) -> None:
        served.append(master)
        take_over(context.job_dir, uid)
        # Before the first turn, which would go by `worker.replicas`.
        master.loop.grant(cluster.config.current.grant)
        follow = _follow(cluster, master, prepared.text)
        following.extend(
            (
                asyncio.create_task(follow, name="config map"),
                asyncio.create_task(cluster.batch_job.allow_more(), name="batch job"),
            )
        )

    try:
        if prepared.launched:
            check_platform(place.config_dir, prepared.spec, namespace=place.namespace)
        ending = await serve(
            context,
            prepared.spec,
            Start(
                make_platform=lambda: cluster.platform,
                authority=authority,
                launched=prepared.launched,
                attend=attend,
                on_signal=lambda master: master.loop.hand_over(),
                edits=None,  # they come from the ConfigMap
            ),
        )
        if ending is not None:
            _log_end(served[0].job.report)
        return ending
    finally:
        for task in following:
            task.cancel()
        await asyncio.gather(*following, return_exceptions=True)
        loop = asyncio.get_running_loop()
        freed = loop.run_in_executor(None, _release, prepared.lock)
        await within(END_SECONDS, freed, str(context.job_dir.root))


async def _follow(cluster: Cluster, master: Master, known: str) -> None:
    """Pass on changes of the job's ConfigMap: edits, stop, deletion."""
    job = master.job

    def stop(reason: str) -> None:
        job.end(JobState.STOPPED, reason, ExitCode.STOPPED)

    async def edit(text: str) -> None:
        loop, source = asyncio.get_running_loop(), "the job's ConfigMap"
        edited = await loop.run_in_executor(None, live_edits.parse, text, source)
        master.loop.edit(edited)

    try:
        await cluster.follow(
            job.job_dir.spec_file,
            known=known,
            on_edit=edit,
            on_stop=stop,
            on_deleted=lambda: stop("its ConfigMap was deleted"),
            on_grant=master.loop.grant,
        )
    except PlatformError as error:
        job.end(JobState.FAILED, str(error), error.exit_code)


async def _show_failure(cluster: Cluster, job: str, error: ElasticDLError) -> None:
    """Publish the failure of a job that never had a master."""
    now = time.time()
    shown = JobStatus(
        name=job,
        type="",
        strategy="",
        state=JobState.FAILED,
        ending=str(JobState.FAILED),
        message=str(error),
        started=now,
        time=now,
        master_generation=0,
        workers_wanted=0,
    )
    failed = JobEntered(time=now, state=shown.state)
    for notice in notices(decisions_of(failed, job=job, message=shown.message)):
        cluster.publisher.notice(notice)
    cluster.publisher.headline(str(shown.state), shown.message)
    await cluster.publisher.close(status=shown.model_dump_json(), report="")


def _log_end(report: JobReport | None) -> None:
    """Copy the report to the pod's log, which outlives the volume's folder."""
    if report is None:
        return
    short = report.model_dump_json(
        exclude={"replays", "bad_records", "relaunches", "evaluations"}
    )
    log.info("report: %s", short)
