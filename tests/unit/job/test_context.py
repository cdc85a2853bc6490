"""What a role's process reads from its environment, on a laptop and in a pod."""

from pathlib import Path

import pytest
from elasticdl.errors import PlatformError, SpecError
from elasticdl.job import names
from elasticdl.job.context import RoleContext, join_address, split_address
from elasticdl.job.names import Role

HERE = {
    names.ENV_JOB_DIR: "/jobs/digits",
    names.ENV_ROLE: "worker",
    names.ENV_INDEX: "3",
    names.ENV_GENERATION: "7",
    names.ENV_MASTER_ADDRESS: "127.0.0.1:40001",
    names.ENV_PLATFORM_ADDRESS: "127.0.0.1:40002",
    names.ENV_TOKEN: "of this job",
    names.ENV_LIFELINE_FD: "5",
}
POD = {
    names.ENV_JOB_DIR: "/data/.elasticdl/jobs/ml/digits",
    names.ENV_MASTER_ADDRESS: "elasticdl-digits-master.ml.svc:50001",
    names.ENV_TOKEN: "of this job\n",
    names.ENV_HOST: "0.0.0.0",
    names.ENV_PORT: "50002",
    names.ENV_POD_IP: "10.244.0.7",
    names.ENV_METRICS_PORT: "8080",
}
MASTER_POD = POD | {
    names.ENV_PORT: "50001",
    names.ENV_PLATFORM: "kubernetes",
    names.ENV_NAMESPACE: "ml",
    names.ENV_CONFIG_MAP: "elasticdl-digits",
    names.ENV_PRIORITY_HIGH: "urgent",
}


def test_a_process_here_listens_on_loopback_and_any_port() -> None:
    context = RoleContext.from_environ(HERE, Role.WORKER)
    assert context.name == "worker-3"
    assert (context.host, context.port, context.metrics_port) == ("127.0.0.1", 0, 0)
    assert context.announced(1234) == "127.0.0.1:1234"
    assert (context.lifeline_fd, context.most_silence_seconds) == (5, None)


def test_a_master_here_listens_where_it_is_called() -> None:
    context = RoleContext.from_environ(HERE, Role.MASTER)
    assert (context.host, context.port) == ("127.0.0.1", 40001)
    assert context.cluster is None


def test_a_pod_listens_everywhere_and_announces_its_own_address() -> None:
    environ = POD | {names.ENV_INDEX: "1", names.ENV_GENERATION: "4"}
    context = RoleContext.from_environ(environ, Role.PS)
    assert (context.host, context.port, context.metrics_port) == (
        "0.0.0.0",
        50002,
        8080,
    )
    assert context.announced(50002) == "10.244.0.7:50002"
    assert context.token == "of this job"
    # No launcher ends it: it leaves by itself when no master answers.
    assert context.most_silence_seconds == 600.0
    assert context.cluster is None


def test_a_master_in_a_pod_knows_where_it_is() -> None:
    context = RoleContext.from_environ(MASTER_POD, Role.MASTER)
    assert context.name == "master-0"
    assert (context.host, context.port) == ("0.0.0.0", 50001)
    assert context.cluster is not None
    assert context.cluster.namespace == "ml"
    assert context.cluster.job == "digits"
    assert context.cluster.config_dir == Path("/etc/elasticdl")
    assert context.cluster.priority_classes == {"high": "urgent"}


def test_each_run_of_a_job_has_its_own_mark_in_the_folder() -> None:
    first = RoleContext.from_environ(MASTER_POD, Role.MASTER).cluster
    environ = MASTER_POD | {names.ENV_RUN: "2"}
    second = RoleContext.from_environ(environ, Role.MASTER).cluster
    assert first is not None
    assert second is not None
    assert (
        first.owner_mark("uid") == "uid"
    )  # as masters wrote it before there were runs
    assert second.owner_mark("uid") != first.owner_mark("uid")


def test_an_address_of_the_new_kind_gets_its_brackets() -> None:
    environ = POD | {
        names.ENV_INDEX: "0",
        names.ENV_GENERATION: "1",
        names.ENV_POD_IP: "fd00::7",
        names.ENV_HOST: "::",
    }
    context = RoleContext.from_environ(environ, Role.PS)
    assert context.announced(50002) == "[fd00::7]:50002"
    assert split_address(join_address("fd00::7", 5)) == ("fd00::7", 5)


def test_the_token_is_not_in_what_may_be_logged() -> None:
    assert "of this job" not in repr(RoleContext.from_environ(HERE, Role.WORKER))


@pytest.mark.parametrize(
    ("role", "change", "message"),
    [
        (Role.PS, {names.ENV_TOKEN: " "}, "ELASTICDL_TOKEN is empty"),
        (Role.PS, {names.ENV_METRICS_PORT: "http"}, "ELASTICDL_METRICS_PORT: got"),
        (Role.MASTER, {names.ENV_PLATFORM: "mesos"}, "expected local or kubernetes"),
        (Role.MASTER, {names.ENV_PLATFORM: "kubernetes"}, "CONFIG_MAP is not set"),
        (Role.MASTER, {names.ENV_MASTER_ADDRESS: "nowhere"}, "expected `host:port`"),
    ],
)
def test_what_makes_no_sense_is_named(
    role: Role, change: dict[str, str], message: str
) -> None:
    with pytest.raises(SpecError, match=message):
        RoleContext.from_environ(HERE | change, role)


def test_a_process_without_a_token_does_not_start() -> None:
    environ = {k: v for k, v in HERE.items() if k != names.ENV_TOKEN}
    with pytest.raises(SpecError, match="ELASTICDL_TOKEN is not set"):
        RoleContext.from_environ(environ, Role.WORKER)


def test_a_master_knows_for_which_package_its_chart_was_made():
    environ = MASTER_POD | {names.ENV_CHART_VERSION: "1.0.0"}
    context = RoleContext.from_environ(environ, Role.MASTER)
    assert context.cluster.chart_version == "1.0.0"


@pytest.mark.parametrize("role", Role)
def test_a_job_whose_token_of_metrics_is_empty_shows_none_in_the_clear(
    role: Role,
) -> None:
    """`tls.metrics` with a Secret of one's own, whose key `metrics` holds nothing."""
    environ = MASTER_POD | {names.ENV_INDEX: "1", names.ENV_GENERATION: "4"}
    assert RoleContext.from_environ(environ, role).metrics_token == ""
    with pytest.raises(PlatformError, match="the key `metrics` of the Secret"):
        RoleContext.from_environ(environ | {names.ENV_METRICS_TOKEN: " \n"}, role)
