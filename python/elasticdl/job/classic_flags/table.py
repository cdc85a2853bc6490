"""Every flag of the classic command line: the field it spells, or why it is refused.

Owns the table; data and nothing else. `job.classic_flags.convert` applies it,
`cli.options.flags` makes the parser from it, docs/spec.md lists it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from elasticdl.job.classic_flags import values as as_
from elasticdl.job.spec.kinds import JobType

ALL = (JobType.TRAIN, JobType.EVALUATE, JobType.PREDICT)
TRAIN = (JobType.TRAIN,)
EVALUATE = (JobType.EVALUATE,)
PREDICT = (JobType.PREDICT,)


@dataclass(frozen=True)
class GivenFlag:
    """A flag as the user gave it; `text` is None where no value came with it."""

    name: str
    text: str | None

    @property
    def written(self) -> str:
        """`--num_workers 3`."""
        return f"--{self.name}" if self.text is None else f"--{self.name} {self.text}"


@dataclass(frozen=True)
class Flag:
    """One flag; it has either a `field` or a `refusal`.

    `always` is the one value that a refused flag may have, since it is how ElasticDL
    works anyway.
    """

    name: str
    verbs: tuple[JobType, ...]
    field: str = ""
    parse: Callable[[str], Any] = as_.text
    note: str = ""
    refusal: str = ""
    always: str | None = None

    @property
    def is_switch(self) -> bool:
        """Whether the flag may be given without a value, meaning `true`."""
        return self.parse is as_.truth or bool(self.refusal)


def _maps(
    name: str,
    field: str,
    parse: Callable[[str], Any] = as_.text,
    *,
    verbs: tuple[JobType, ...] = ALL,
    note: str = "",
) -> Flag:
    return Flag(name, verbs, field=field, parse=parse, note=note)


def _refused(name: str, refusal: str, *, always: str | None = None) -> Flag:
    return Flag(name, ALL, refusal=refusal, always=always)


_POD_TEMPLATES = (
    "pods are patched by the chart's values in the same file (tolerations, affinity, "
    "annotations), not by a program; take it out"
)
_DOCKER = (
    "images are built by `elasticdl zoo build` from the Dockerfile that `elasticdl zoo "
    "init` writes; take it out"
)
_ZOO = "it is an option of `elasticdl zoo`, not of a job"
_BETWEEN_ROLES = (
    "every process reads the values file and finds the others through the master; "
    "take it out"
)
_OWN_LOOP = (
    "ElasticDL runs the model module's own training; write the model as a Keras "
    "model, see docs/models.md"
)
_MASTER_PARTS = "the master always has this part; take it out"

FLAGS: tuple[Flag, ...] = (
    _maps("job_name", "name"),
    _maps("image_name", "image"),
    _maps("worker_image", "worker.image", note="the PS use it too"),
    _maps("ps_image", "ps.image"),
    _maps("namespace", "namespace"),
    _maps("model_zoo", "model.zoo"),
    _maps("model_def", "model.definition"),
    _maps("model_params", "model.params", as_.parameters),
    _maps("feed", "model.feed"),
    _maps("dataset_fn", "model.feed", note="older name of `feed`"),
    _maps("loss", "model.loss"),
    _maps("optimizer", "model.optimizer"),
    _maps("eval_metrics_fn", "model.evalMetrics"),
    _maps("callbacks", "model.callbacks"),
    _maps("custom_data_reader", "model.dataReader"),
    _maps(
        "prediction_outputs_processor",
        "model.predictionOutputsProcessor",
        verbs=PREDICT,
    ),
    _maps("minibatch_size", "training.batchSize", as_.whole),
    _maps("num_minibatches_per_task", "training.batchesPerTask", as_.whole),
    _maps("records_per_task", "training.batchesPerTask", as_.whole),
    _maps("data_reader_params", "data.readerParams", as_.parameters),
    _maps("distribution_strategy", "strategy", as_.strategy),
    _maps("get_model_steps", "worker.pullSteps", as_.whole),
    _maps("checkpoint_steps", "checkpoint.everySteps", as_.whole),
    _maps("checkpoint_dir", "checkpoint.dir"),
    _maps("keep_checkpoint_max", "checkpoint.keep", as_.whole),
    _maps("checkpoint_dir_for_init", "checkpoint.initFrom"),
    _maps("checkpoint_filename_for_init", "checkpoint.initFrom"),
    _maps("output", "export.dir", verbs=TRAIN),
    _maps("output", "predictionOutput", verbs=PREDICT),
    _maps("num_workers", "worker.replicas", as_.whole),
    _maps("num_ps_pods", "ps.replicas", as_.whole),
    _maps("master_resource_request", "master.resources", as_.resources),
    _maps("master_resource_limit", "master.limits", as_.resources),
    _maps("worker_resource_request", "worker.resources", as_.resources),
    _maps("worker_resource_limit", "worker.limits", as_.resources),
    _maps("ps_resource_request", "ps.resources", as_.resources),
    _maps("ps_resource_limit", "ps.limits", as_.resources),
    _maps("master_pod_priority", "master.priority"),
    _maps("ps_pod_priority", "ps.priority"),
    _maps(
        "worker_pod_priority",
        "worker.priority",
        as_.worker_priority,
        note="a class, or the share of workers that is `high`",
    ),
    _maps("volume", "volumes", as_.volumes),
    _maps("image_pull_policy", "imagePullPolicy"),
    _maps("envs", "env", as_.environment),
    _refused(
        "populate_env_names",
        "the master's environment is not copied, which would show values of Secrets; "
        "--envs reaches all roles, as pods.common.env and .envFrom of a values file do",
    ),
    _maps("log_level", "log.level", as_.level),
    _maps("log_file_path", "log.file"),
    _maps("port", "master.port", as_.whole),
    _maps("training_data", "data.training", verbs=TRAIN),
    _maps(
        "validation_data",
        "data.validation",
        verbs=(JobType.TRAIN, JobType.EVALUATE),
    ),
    _maps("prediction_data", "data.prediction", verbs=PREDICT),
    _maps("num_epochs", "training.epochs", as_.epochs, verbs=TRAIN),
    _maps("max_step", "training.maxSteps", as_.whole, verbs=TRAIN),
    _maps("evaluation_steps", "evaluation.everySteps", as_.whole, verbs=TRAIN),
    _maps(
        "evaluation_start_delay_secs",
        "evaluation.startDelaySeconds",
        as_.seconds,
        verbs=TRAIN,
    ),
    _maps(
        "evaluation_throttle_secs",
        "evaluation.everySeconds",
        as_.seconds,
        verbs=TRAIN,
    ),
    _maps("use_async", "ps.mode", as_.truth, verbs=TRAIN),
    _maps(
        "grads_to_wait",
        "ps.gradsToWait",
        as_.whole,
        verbs=TRAIN,
        note="gradients of one version that are averaged",
    ),
    _maps(
        "lr_staleness_modulation",
        "ps.stalenessModulation",
        as_.truth,
        verbs=TRAIN,
    ),
    _maps("log_loss_steps", "training.logLossSteps", as_.whole, verbs=TRAIN),
    _maps(
        "relaunch_on_worker_failure",
        "worker.maxRestarts",
        as_.whole,
        verbs=TRAIN,
        note="of all workers together; preemption never counts",
    ),
    _refused(
        "sync_version_tolerance",
        "a version is made of gradients of that very version; --grads_to_wait below "
        "the number of workers leaves room for slow ones, --use_async for any",
        always="0",
    ),
    _refused(
        "restart_policy",
        "the master replaces replicas by rules of its own (docs/faults.md); "
        "--relaunch_on_worker_failure sets how many crashes are forgiven",
        always="Never",
    ),
    _refused(
        "extra_pypi_index", "nothing is installed at run time; put it in the image"
    ),
    _refused("cluster_spec", _POD_TEMPLATES),
    _refused("cluster_spec_json", _POD_TEMPLATES),
    _refused(
        "yaml",
        "`elasticdl train --yaml FILE` writes the manifests; it is no field of a job",
    ),
    _refused(
        "force_use_kube_config_file",
        "the kube config is always used; `elasticdl train --context` names one of its "
        "contexts, KUBECONFIG another file",
        always="false",
    ),
    _refused(
        "aux_params",
        "lost replicas are always replaced; --relaunch_on_worker_failure 0 gives up at "
        "the first crash of the model's code",
        always="disable_relaunch=False",
    ),
    _refused("need_elasticdl_job_service", _MASTER_PARTS, always="true"),
    _refused("need_task_manager", _MASTER_PARTS, always="true"),
    _refused("need_pod_manager", _MASTER_PARTS, always="true"),
    _refused(
        "task_fault_tolerance",
        "tasks of lost workers are always given out again; take it out",
        always="true",
    ),
    _refused(
        "relaunch_timeout_worker",
        "hung workers are always replaced; worker.hangSeconds in a values file sets "
        "after how long",
        always="true",
    ),
    _refused("job_command", _OWN_LOOP),
    _refused("need_tf_config", _OWN_LOOP, always="false"),
    _refused("image_base", _DOCKER),
    _refused("docker_image_repository", _DOCKER),
    _refused("docker_image_prefix", _DOCKER),
    _refused("docker_base_url", _DOCKER),
    _refused("docker_tlscert", _DOCKER),
    _refused("docker_tlskey", _DOCKER),
    _refused(
        "tensorboard_log_dir",
        "the master writes TensorBoard's event files into the job's folder "
        "(docs/observe.md); take it out",
    ),
    _refused(
        "job_type", "the command says it: train, evaluate or predict; take it out"
    ),
    _refused("worker_id", _BETWEEN_ROLES),
    _refused("ps_id", _BETWEEN_ROLES),
    _refused("ps_addrs", _BETWEEN_ROLES),
    _refused("master_addr", _BETWEEN_ROLES),
    _refused(
        "opt_type",
        "the optimizer is the one that the model module returns; take it out",
    ),
    _refused(
        "opt_args",
        "the optimizer is the one that the model module returns; take it out",
    ),
    # Of `zoo init`, `zoo build` and `zoo push` alone.
    _refused("base_image", _ZOO),
    _refused("local_pkg_dir", _DOCKER),
    _refused("image", f"{_ZOO}; a job's image is --image_name"),
)


def flags_of(verb: JobType) -> dict[str, Flag]:
    """Return the flags of a command by name; refused ones too."""
    return {flag.name: flag for flag in FLAGS if verb in flag.verbs}


def flag_of_field(field: str, verb: JobType) -> Flag | None:
    """Return the flag that spells a field (dotted, without `job.`), or None."""
    for flag in FLAGS:
        if flag.field == field and verb in flag.verbs:
            return flag
    return None
