"""Classic flags: each one has a field or a reason; rules between them."""

import pytest
from elasticdl.errors import SpecError
from elasticdl.job.classic_flags.convert import GivenFlag, job_name, values_from_flags
from elasticdl.job.classic_flags.table import FLAGS, flags_of
from elasticdl.job.spec.job import JobSpec, JobType, Strategy, UpdateMode
from elasticdl.job.values.fields import documented

# The flags of the classic command line: those of every command, of train, of evaluate
# and predict, of the master, the workers and the PS alone, of `zoo`, those that were
# removed over time, and those that the cloud tutorial uses.
CLASSIC = [
    "job_name",
    "image_name",
    "worker_image",
    "namespace",
    "model_zoo",
    "model_def",
    "feed",
    "loss",
    "optimizer",
    "eval_metrics_fn",
    "callbacks",
    "custom_data_reader",
    "minibatch_size",
    "num_minibatches_per_task",
    "data_reader_params",
    "distribution_strategy",
    "get_model_steps",
    "checkpoint_steps",
    "checkpoint_dir",
    "keep_checkpoint_max",
    "output",
    "num_workers",
    "num_ps_pods",
    "master_resource_request",
    "master_resource_limit",
    "worker_resource_request",
    "worker_resource_limit",
    "ps_resource_request",
    "ps_resource_limit",
    "master_pod_priority",
    "ps_pod_priority",
    "worker_pod_priority",
    "volume",
    "image_pull_policy",
    "restart_policy",
    "envs",
    "populate_env_names",
    "extra_pypi_index",
    "cluster_spec",
    "cluster_spec_json",
    "yaml",
    "force_use_kube_config_file",
    "aux_params",
    "log_level",
    "log_file_path",
    "training_data",
    "validation_data",
    "num_epochs",
    "max_step",
    "evaluation_steps",
    "checkpoint_dir_for_init",
    "use_async",
    "grads_to_wait",
    "sync_version_tolerance",
    "lr_staleness_modulation",
    "log_loss_steps",
    "need_elasticdl_job_service",
    "need_task_manager",
    "need_pod_manager",
    "task_fault_tolerance",
    "relaunch_timeout_worker",
    "relaunch_on_worker_failure",
    "job_command",
    "need_tf_config",
    "prediction_data",
    "prediction_outputs_processor",
    "port",
    "job_type",
    "ps_addrs",
    "worker_id",
    "master_addr",
    "ps_id",
    "opt_type",
    "opt_args",
    "base_image",
    "local_pkg_dir",
    "image",
    "image_base",
    "docker_image_repository",
    "docker_base_url",
    "docker_tlscert",
    "docker_tlskey",
    "model_params",
    "tensorboard_log_dir",
    "evaluation_start_delay_secs",
    "evaluation_throttle_secs",
    "records_per_task",
]

BASE = {"model_def": "digits.cnn.custom_model", "training_data": "data/train"}


def convert(verb=JobType.TRAIN, base=None, **flags):
    flags = {**(BASE if base is None else base), **flags}
    given = [GivenFlag(name, text) for name, text in flags.items()]
    return values_from_flags(given, verb)


def job(**flags):
    return convert(**flags).values.job


def refusal(**flags):
    with pytest.raises(SpecError) as raised:
        convert(**flags)
    return str(raised.value)


@pytest.mark.parametrize("name", CLASSIC)
def test_every_classic_flag_has_a_field_or_a_reason(name):
    flags = [flag for flag in FLAGS if flag.name == name]
    assert flags, f"--{name} would be an unknown flag"
    known = {doc.path.removeprefix("job.") for doc in documented(JobSpec, "job")}
    for flag in flags:
        assert bool(flag.field) != bool(flag.refusal)
        if flag.field:
            assert any(
                path == flag.field or path.startswith(f"{flag.field}.")
                for path in known
            ), flag


def test_three_flags_are_enough():
    spec = job(output="outputs/digits")
    assert spec.name == "digits-cnn"
    assert spec.image == ""
    assert (spec.ps.replicas, spec.worker.replicas) == (1, 1)
    assert spec.training.batch_size == 64
    assert spec.export.dir == "outputs/digits"


@pytest.mark.parametrize(
    ("name", "text", "path", "value"),
    [
        ("job_name", "a-job", "name", "a-job"),
        ("image_name", "i:1", "image", "i:1"),
        ("ps_image", "i:1", "ps.image", "i:1"),
        ("namespace", "ml", "namespace", "ml"),
        ("model_zoo", "zoo", "model.zoo", "zoo"),
        ("model_params", "units=8;name=a", "model.params", {"units": 8, "name": "a"}),
        ("feed", "f", "model.feed", "f"),
        ("dataset_fn", "f", "model.feed", "f"),
        ("loss", "f", "model.loss", "f"),
        ("optimizer", "f", "model.optimizer", "f"),
        ("eval_metrics_fn", "f", "model.eval_metrics", "f"),
        ("callbacks", "f", "model.callbacks", "f"),
        ("custom_data_reader", "f", "model.data_reader", "f"),
        ("minibatch_size", "32", "training.batch_size", 32),
        ("num_minibatches_per_task", "4", "training.batches_per_task", 4),
        ("records_per_task", "128", "training.batches_per_task", 2),
        ("get_model_steps", "3", "worker.pull_steps", 3),
        ("checkpoint_steps", "10", "checkpoint.every_steps", 10),
        ("checkpoint_dir", "c", "checkpoint.dir", "c"),
        ("keep_checkpoint_max", "0", "checkpoint.keep", 0),
        ("checkpoint_dir_for_init", "c", "checkpoint.init_from", "c"),
        ("num_workers", "4", "worker.replicas", 4),
        ("num_ps_pods", "2", "ps.replicas", 2),
        ("master_pod_priority", "high", "master.priority", "high"),
        ("ps_pod_priority", "high", "ps.priority", "high"),
        ("worker_pod_priority", "low", "worker.priority", "low"),
        ("worker_pod_priority", "0.5", "worker.priority", "0.5"),
        ("worker_pod_priority", "high=0.5", "worker.priority", "0.5"),
        ("image_pull_policy", "Never", "image_pull_policy", "Never"),
        ("envs", "A=1,B=x,y", "env", {"A": "1", "B": "x,y"}),
        ("log_level", "WARNING", "log.level", "warning"),
        ("log_file_path", "l", "log.file", "l"),
        ("port", "50001", "master.port", 50001),
        ("validation_data", "v", "data.validation", "v"),
        ("num_epochs", "5", "training.epochs", 5),
        ("num_epochs", "0", "training.epochs", 0),
        ("num_epochs", "-1", "training.epochs", 0),
        ("max_step", "9", "training.max_steps", 9),
        ("evaluation_steps", "50", "evaluation.every_steps", 50),
        ("evaluation_start_delay_secs", "5", "evaluation.start_delay_seconds", 5.0),
        ("evaluation_throttle_secs", "5", "evaluation.every_seconds", 5.0),
        ("use_async", None, "ps.mode", UpdateMode.ASYNC),
        ("use_async", "false", "ps.mode", UpdateMode.SYNC),
        ("lr_staleness_modulation", "t", "ps.staleness_modulation", True),
        ("log_loss_steps", "7", "training.log_loss_steps", 7),
        ("relaunch_on_worker_failure", "0", "worker.max_restarts", 0),
        ("distribution_strategy", "Local", "strategy", Strategy.LOCAL),
        ("distribution_strategy", "", "strategy", Strategy.LOCAL),
        (
            "distribution_strategy",
            "ParameterServerStrategy",
            "strategy",
            Strategy.PARAMETER_SERVER,
        ),
    ],
)
def test_a_flag_is_another_spelling_of_its_field(name, text, path, value):
    found = job(**{name: text})
    for part in path.split("."):
        found = getattr(found, part)
    assert found == value


def test_resources_are_read_with_classic_and_modern_names():
    spec = job(
        worker_resource_request="cpu=0.5,memory=1024Mi,disk=2Gi,gpu=1,amd.com/gpu=2",
        worker_resource_limit="cpu=1",
        master_resource_request="cpu=250m",
        ps_resource_request="memory=1Gi,nvidia.com/mig-1g=1",
    )
    assert (spec.worker.resources.cpu, spec.worker.resources.memory) == (0.5, "1024Mi")
    assert spec.worker.resources.extra == {
        "ephemeral-storage": "2Gi",
        "nvidia.com/gpu": "1",
        "amd.com/gpu": "2",
    }
    assert spec.worker.limits is not None
    assert (spec.worker.limits.cpu, spec.worker.limits.memory) == (1.0, None)
    assert (spec.master.resources.cpu, spec.master.resources.memory) == (0.25, "1024Mi")
    assert spec.ps.resources.extra == {"nvidia.com/mig-1g": "1"}


def test_volumes_are_read_one_after_the_other():
    volumes = job(
        volume="claim_name=c1,mount_path=/a,sub_path=s;"
        "host_path=/b,mount_path=/b,type=Directory"
    ).volumes
    assert (volumes[0].claim_name, volumes[0].sub_path) == ("c1", "s")
    assert (volumes[1].host_path, volumes[1].type) == ("/b", "Directory")


def test_reader_parameters_are_typed_and_never_evaluated():
    data = job(
        data_reader_params="columns=['a', 'b'];n=3;ok=True;none=None;path=a/b.csv;"
        "pair=(1, 2);sep='x'"
    ).data
    assert data.reader_params == {
        "columns": ["a", "b"],
        "n": 3,
        "ok": True,
        "none": None,
        "path": "a/b.csv",
        "pair": [1, 2],
        "sep": "x",
    }
    assert "values, not code" in refusal(data_reader_params='a=open("/etc/passwd")')


def test_the_reader_type_becomes_the_format():
    data = job(data_reader_params='reader_type="CSV"').data
    assert (data.format, data.reader_params) == ("csv", {})
    assert "custom reader" in refusal(data_reader_params="reader_type=ODPS")


def test_the_workers_image_is_the_ps_image_too():
    spec = job(worker_image="w:1")
    assert (spec.worker.image, spec.ps.image) == ("w:1", "w:1")
    assert job(worker_image="w:1", ps_image="p:1").ps.image == "p:1"


def test_gradients_to_wait_for_make_a_job_synchronous():
    assert job(grads_to_wait="3").ps.mode is UpdateMode.SYNC
    assert job(grads_to_wait="1").ps.mode is UpdateMode.ASYNC
    assert "--grads_to_wait: got 3, expected it left out with --use_async" in refusal(
        use_async="yes", grads_to_wait="3"
    )


def test_no_ps_is_a_local_job_and_all_reduce_for_several_workers():
    assert job(num_ps_pods="0").strategy is Strategy.LOCAL
    assert job(num_ps_pods="0", distribution_strategy="Local").ps.replicas == 1
    assert job(num_ps_pods="0", num_workers="3").strategy is Strategy.ALL_REDUCE
    assert "1 or more with parameter servers" in refusal(
        num_ps_pods="0", distribution_strategy="ParameterServerStrategy"
    )


@pytest.mark.parametrize("name", ["AllreduceStrategy", "allreduce"])
def test_all_reduce_needs_no_ps_and_refuses_them(name):
    assert job(distribution_strategy=name).strategy is Strategy.ALL_REDUCE
    assert job(distribution_strategy=name, num_ps_pods="0").worker.replicas == 1
    assert "there are no parameter servers" in refusal(
        distribution_strategy=name, num_ps_pods="2"
    )


def test_records_per_task_have_to_be_whole_batches():
    assert "a multiple of --minibatch_size, 64" in refusal(records_per_task="100")
    assert "take one of them out" in refusal(
        records_per_task="64", num_minibatches_per_task="1"
    )


@pytest.mark.parametrize("flag", [flag for flag in FLAGS if flag.refusal])
def test_a_refused_flag_gives_its_reason(flag):
    text = refusal(**{flag.name: "something"})
    assert f"--{flag.name}: got 'something'" in text
    assert flag.refusal in text


@pytest.mark.parametrize("flag", [flag for flag in FLAGS if flag.always])
def test_a_flag_that_asks_for_what_is_so_anyway_is_accepted(flag):
    assert job(**{flag.name: flag.always}) == job()


def test_bool_flags_without_a_value_mean_true():
    assert job(need_pod_manager=None) == job()
    assert "--need_tf_config: got 'true'" in refusal(need_tf_config=None)


@pytest.mark.parametrize(
    ("flags", "part"),
    [
        ({"num_workers": "x"}, "--num_workers: got 'x', expected a whole number"),
        ({"num_workers": "-1"}, "--num_workers -1: job.worker.replicas: got -1"),
        ({"use_async": "maybe"}, "expected true or false"),
        ({"evaluation_throttle_secs": "x"}, "expected a number of seconds"),
        ({"distribution_strategy": "ParamServer"}, "expected a strategy"),
        ({"envs": "A"}, "has no name or no `=`"),
        ({"envs": "A=1,A=2"}, "expected `A` once"),
        ({"model_params": "a"}, "has no name or no `=`"),
        ({"worker_resource_request": "cpu"}, "has no `=`"),
        ({"worker_resource_request": "cpu=x"}, "CPUs as 0.5 or 500m"),
        ({"worker_resource_request": "memry=1Gi"}, "did you mean `memory`?"),
        ({"worker_resource_request": "memory=4GB"}, "a quantity, as"),
        ({"volume": "claim=c,mount_path=/a"}, "did you mean `claim_name`?"),
        ({"volume": "claim_name=c"}, "mountPath: got nothing"),
        ({"worker_pod_priority": "low=0.5"}, "--worker_pod_priority"),
        ({"image_pull_policy": "always"}, "did you mean `Always`?"),
        ({"log_level": "LOUD"}, "one of `debug`"),
        ({"num_wokers": "3"}, "did you mean `--num_workers`?"),
        ({"zzzzzz": "3"}, "`elasticdl train --help` lists them"),
        ({"prediction_data": "p"}, "a flag of `elasticdl predict` alone"),
        ({"job_name": "A_B"}, "--job_name A_B: job.name: got 'A_B'"),
    ],
)
def test_a_wrong_flag_is_named_with_what_to_do(flags, part):
    assert part in refusal(**flags)


def test_all_wrong_flags_are_named_at_once():
    text = refusal(
        num_workers="0", num_ps_pods="x", cluster_spec="c", nonsense_flag="1"
    )
    assert text.startswith("4 mistakes:")


def test_what_is_missing_is_named_by_its_flag():
    text = refusal(base={}, num_workers="2")
    assert "--model_def: got nothing" in text
    assert "--training_data: got nothing" in text
    with pytest.raises(SpecError, match="--checkpoint_dir_for_init: got nothing"):
        convert(JobType.PREDICT, {"model_def": "a.b", "prediction_data": "p"})


def test_a_flag_given_twice_is_refused():
    given = [GivenFlag("num_workers", "2"), GivenFlag("num_workers", "3")]
    with pytest.raises(SpecError, match="each flag once"):
        values_from_flags(given, JobType.TRAIN)


def test_evaluate_and_predict_have_their_own_flags():
    spec = convert(
        JobType.EVALUATE,
        {"model_def": "a.b", "validation_data": "v", "checkpoint_dir_for_init": "c"},
    ).values.job
    assert (spec.type, spec.checkpoint.init_from) == (JobType.EVALUATE, "c")
    spec = convert(
        JobType.PREDICT,
        {
            "model_def": "a.b",
            "prediction_data": "p",
            "checkpoint_dir_for_init": "c",
            "output": "out",
            "prediction_outputs_processor": "Out",
        },
    ).values.job
    assert spec.prediction_output == "out"
    assert spec.model.prediction_outputs_processor == "Out"
    assert "output" not in flags_of(JobType.EVALUATE)


@pytest.mark.parametrize(
    ("definition", "name"),
    [
        ("digits.cnn.custom_model", "digits-cnn"),
        ("mnist.mnist_functional_api.custom_model", "mnist-functional-api"),
        ("model.CustomModel", "model"),
        ("Census_Model.x.y", "census-model-x"),
        ("f", "f"),
        ("", "job"),
        ("___.f", "job"),
        ("a" * 60 + ".f", "a" * 46),
    ],
)
def test_a_job_without_a_name_is_called_after_its_model(definition, name):
    assert job_name(definition) == name


def chart_keys(**flags):
    return convert(**flags).values.chart_keys()


def test_the_first_claim_of_volume_holds_the_jobs_folder_too():
    both = "claim_name=mine,mount_path=/mnt;claim_name=more,mount_path=/more"
    state = {"claimName": "mine", "mountPath": "/mnt"}
    assert chart_keys(volume=both) == {"state": state}


def test_a_volume_where_the_chart_mounts_its_own_takes_its_place():
    assert chart_keys(volume="claim_name=mine,mount_path=/data") == {}
    assert chart_keys(volume="host_path=/x,mount_path=/mnt") == {}
