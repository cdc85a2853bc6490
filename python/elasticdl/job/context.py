"""What a role's process knows when it begins, its log format and its lifeline.

Owns the environment's meaning (read in `*/main.py`, parsed here), the log line's form
and the thread that ends a process whose launcher is gone. Called by every role's main.
Must not know what the role does.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import shutil
import sys
import termios
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from elasticdl.errors import ExitCode, PlatformError, SpecError
from elasticdl.job import names
from elasticdl.job.log_file import LogFile, cannot_be_written
from elasticdl.job.names import JobDir, Role

log = logging.getLogger(__name__)

LOG_DATE = "%Y-%m-%d %H:%M:%S"
_TERMINAL = Path("/dev/tty")  # of whoever opens it
LOOPBACK = "127.0.0.1"
# A batch Job that starts its pod again and again pauses for up to six minutes.
MOST_SILENCE_SECONDS = 600.0
CERTIFICATE_HOURS = 24.0


@dataclass(frozen=True)
class EnrolmentKeys:
    """What a new replica requests its certificate with (`rpc.enrolment`); PEM."""

    authority: str
    certificate: str
    seed: str = field(repr=False)


@dataclass(frozen=True)
class PodPlace:
    """What a master in a pod knows about its environment."""

    namespace: str
    config_map: str  # of the job: its specification, and the owner of its pods
    job: str
    config_dir: Path = Path(names.CONFIG_DIR)
    # What the words `high` and `low` of a values file are called there.
    priority_classes: Mapping[str, str] = field(default_factory=dict)
    run: int = 1  # of that ConfigMap; one more begins the job anew
    chart_version: str = ""  # of the package that the chart was made for; "" unknown
    # Where the job's authority is, which signs who is who; None: calls are plain.
    authority_dir: Path | None = None
    certificate_hours: float = CERTIFICATE_HOURS

    def owner_mark(self, uid: str) -> str:
        """Return the owner mark of a job's folder: the ConfigMap's `uid` and run."""
        return uid if self.run == 1 else f"{uid} run {self.run}"


@dataclass(frozen=True)
class RoleContext:
    """The identity of this process and the place of its job."""

    job_dir: JobDir
    role: Role
    index: int
    generation: int
    master_address: str
    token: str = field(repr=False)  # every call between the job's processes carries it
    platform_address: str = ""
    lifeline_fd: int | None = None
    temporary_dir: Path | None = None  # this process's own
    launch: str = ""  # whose master this is; a launcher has a name of its own
    host: str = LOOPBACK  # to listen on
    port: int = 0  # 0: any free one
    pod_ip: str = ""  # what peers call; empty: `host`
    metrics_port: int = 0  # 0: any free one
    # What a reader of metrics brings; "": they are in the clear.
    metrics_token: str = field(default="", repr=False)
    cluster: PodPlace | None = None  # a master in a pod
    enrolment: EnrolmentKeys | None = None  # a PS or worker whose calls are encrypted
    lends_memory: bool = True  # a worker to PS of its machine; off for measurements
    # What a command of the user inherits.
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def name(self) -> str:
        """`worker-3`."""
        return names.replica_name(self.role, self.index)

    @property
    def namespace(self) -> str:
        """The namespace of a master in a pod; `local` on one machine."""
        return self.cluster.namespace if self.cluster else names.NAMESPACE_LOCAL

    @property
    def in_pod(self) -> bool:
        """Whether this process runs in a pod."""
        return bool(self.pod_ip)

    @property
    def most_silence_seconds(self) -> float | None:
        """Seconds that a replica waits for a silent master; None: for ever.

        A launcher ends its processes itself. In a cluster nobody may: the batch Job of
        a master can have given up, and pods without a job must not hold CPUs.
        """
        return None if self.lifeline_fd is not None else MOST_SILENCE_SECONDS

    def announced(self, port: int) -> str:
        """Return the `host:port` under which peers reach a port of this process."""
        return join_address(self.pod_ip or self.host, port)

    @staticmethod
    def from_environ(environ: Mapping[str, str], role: Role) -> RoleContext:
        """Read the variables that the platform set.

        The one master of a job needs no index and counts its own generations.
        Raises SpecError if a variable is gone or makes no sense.
        """
        if role is Role.MASTER:
            environ = {names.ENV_INDEX: "0", names.ENV_GENERATION: "0", **environ}
        try:
            host, port = (
                environ.get(names.ENV_HOST, ""),
                _number(environ, names.ENV_PORT),
            )
            if role is Role.MASTER and not (host or port):
                host, port = split_address(environ[names.ENV_MASTER_ADDRESS])
            return RoleContext(
                job_dir=JobDir(Path(environ[names.ENV_JOB_DIR])),
                role=role,
                index=int(environ[names.ENV_INDEX]),
                generation=int(environ[names.ENV_GENERATION]),
                master_address=environ[names.ENV_MASTER_ADDRESS],
                token=_token(environ),
                platform_address=environ.get(names.ENV_PLATFORM_ADDRESS, ""),
                lifeline_fd=_number(environ, names.ENV_LIFELINE_FD) or None,
                temporary_dir=_path(environ, names.ENV_TEMPORARY_DIR),
                launch=environ.get(names.ENV_LAUNCH, ""),
                host=host or LOOPBACK,
                port=port,
                pod_ip=environ.get(names.ENV_POD_IP, ""),
                metrics_port=_number(environ, names.ENV_METRICS_PORT),
                metrics_token=_metrics_token(environ),
                cluster=_cluster(environ) if role is Role.MASTER else None,
                enrolment=None if role is Role.MASTER else _enrolment(environ),
                lends_memory=environ.get(names.ENV_LENT_MEMORY) != "off",
                environ=environ,
            )
        except KeyError as error:
            raise SpecError(
                f"environment variable {error.args[0]} is not set; roles are started "
                "by `elasticdl train` or by the chart, not by hand"
            ) from None


def join_address(host: str, port: int) -> str:
    """Return `host:port`, with the brackets that an IPv6 address needs."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def split_address(address: str) -> tuple[str, int]:
    """Return host and port of `host:port`. Raises SpecError for any other text."""
    host, _, port = address.rpartition(":")
    if not (host and port.isdigit()):
        raise SpecError(
            f"address: got {address!r}, expected `host:port`, as 127.0.0.1:50001"
        )
    return host.strip("[]"), int(port)


def _number(environ: Mapping[str, str], name: str) -> int:
    text = environ.get(name, "")
    if text and not text.isdigit():
        raise SpecError(f"{name}: got {text!r}, expected a number of 0 or more")
    return int(text or 0)


def _path(environ: Mapping[str, str], name: str) -> Path | None:
    text = environ.get(name, "")
    return Path(text) if text else None


def _token(environ: Mapping[str, str]) -> str:
    token = environ[names.ENV_TOKEN].strip()
    if not token:
        raise SpecError(
            f"{names.ENV_TOKEN} is empty: calls between the job's processes would not "
            "be protected; in a cluster it comes from the Secret elasticdl-<job>-token"
        )
    return token


def _metrics_token(environ: Mapping[str, str]) -> str:
    token = environ.get(names.ENV_METRICS_TOKEN)
    if token is not None and not token.strip():
        # Never in the clear because half is missing; a Secret can be mended.
        raise PlatformError(
            f"{names.ENV_METRICS_TOKEN} is empty though this job's metrics are "
            "encrypted (tls.metrics): it is the key `metrics` of the Secret "
            "elasticdl-<job>-token, or of token.existingSecret; put a token there"
        )
    return (token or "").strip()


def _enrolment(environ: Mapping[str, str]) -> EnrolmentKeys | None:
    authority = environ.get(names.ENV_AUTHORITY, "")
    certificate = environ.get(names.ENV_ENROLMENT, "")
    if not authority and not certificate:
        return None
    if not (authority and certificate):
        # Never plain because half is missing.
        missing = names.ENV_ENROLMENT if authority else names.ENV_AUTHORITY
        # Not for good: an older master may make pods of a newer release until it is
        # replaced.
        raise PlatformError(
            f"{missing} is not set though this job's calls are encrypted: the master "
            "gives it to the pods that it makes, the chart names the Secret; begin the "
            "job anew with its release (`run`), or set tls.enabled=false"
        )
    return EnrolmentKeys(authority, certificate, environ[names.ENV_ENROLMENT_SEED])


def _cluster(environ: Mapping[str, str]) -> PodPlace | None:
    platform = environ.get(names.ENV_PLATFORM, "") or names.PLATFORM_LOCAL
    if platform == names.PLATFORM_LOCAL:
        return None
    if platform != names.PLATFORM_KUBERNETES:
        raise SpecError(
            f"{names.ENV_PLATFORM}: got {platform!r}, expected "
            f"{names.PLATFORM_LOCAL} or {names.PLATFORM_KUBERNETES}"
        )
    config_map = environ[names.ENV_CONFIG_MAP]
    words = {"high": names.ENV_PRIORITY_HIGH, "low": names.ENV_PRIORITY_LOW}
    return PodPlace(
        namespace=environ[names.ENV_NAMESPACE],
        config_map=config_map,
        job=config_map.removeprefix(names.config_map_name("")),
        config_dir=Path(environ.get(names.ENV_CONFIG_DIR) or names.CONFIG_DIR),
        priority_classes={
            word: environ[name] for word, name in words.items() if environ.get(name)
        },
        run=_number(environ, names.ENV_RUN) or 1,
        chart_version=environ.get(names.ENV_CHART_VERSION, ""),
        authority_dir=_path(environ, names.ENV_AUTHORITY_DIR),
        certificate_hours=float(
            environ.get(names.ENV_CERTIFICATE_HOURS) or CERTIFICATE_HOURS
        ),
    )


def set_up_logging(name: str, level: str, file: str = "") -> None:
    """Log to standard error as `<time> <LEVEL> <replica> <module>: <message>`.

    `file` gets the same lines (`job.log.file`).
    """
    formatter = logging.Formatter(
        f"%(asctime)s.%(msecs)03d %(levelname)s {name} %(module)s: %(message)s",
        datefmt=LOG_DATE,
    )
    root = logging.getLogger()
    for former in root.handlers:
        former.close()
    root.handlers[:] = [logging.StreamHandler(sys.stderr)]
    problem = ""
    if file:
        try:
            root.addHandler(LogFile(Path(file)))
        except OSError as error:
            problem = cannot_be_written(Path(file), error)
    for handler in root.handlers:
        handler.setFormatter(formatter)
    root.setLevel(logging.WARNING)
    set_log_level(level)
    if problem:
        log.warning("%s", problem)


def set_log_level(level: str) -> None:
    """Change the level of ElasticDL's own loggers; may be called while running."""
    logging.getLogger("elasticdl").setLevel(level.upper())


def leave_terminal() -> None:
    """Have no terminal from now on; those who started this process keep theirs.

    A role is in the background of the launcher's terminal, whose system stops it and
    its whole group for ever once anything of it asks there, as `getpass`, git and ssh
    do for a password. Without a terminal that fails, and says so.
    """
    with contextlib.suppress(OSError), _TERMINAL.open("rb", buffering=0) as terminal:
        fcntl.ioctl(terminal, termios.TIOCNOTTY)


def hold_lifeline(context: RoleContext) -> None:
    """Depend on the launcher, not on its terminal; nothing in a cluster.

    This process ends when the launcher's end of the pipe closes: a launcher that is
    killed cannot stop its processes; without this they would go on for ever.
    """
    fd = context.lifeline_fd
    if fd is None:
        return
    leave_terminal()

    def wait() -> None:
        while os.read(fd, 1):
            pass
        if context.temporary_dir is not None:
            # Whoever would remove it is gone.
            shutil.rmtree(context.temporary_dir, ignore_errors=True)
        os._exit(ExitCode.STOPPED)

    threading.Thread(target=wait, name="lifeline", daemon=True).start()
