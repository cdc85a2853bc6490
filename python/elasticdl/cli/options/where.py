"""Which job a verb means: one of this machine, or one in a cluster.

Owns the options that name a cluster and the rule between both places. Called by the
verbs. Must not call a cluster that nobody asked for: a verb without these options
answers at once, whatever the kube config says.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from elasticdl.cli.options.arguments import add_job
from elasticdl.errors import JobError, NotFoundError

if TYPE_CHECKING:
    from elasticdl.client import LocalJob
    from elasticdl.client.cluster import ClusterJob, Where
    from elasticdl.client.cluster.records import Record


def add_cluster_options(
    parser: argparse._ActionsContainer, *, namespace: bool = True
) -> None:
    """Add `--cluster`, `-n` and `--context`; each of them selects a cluster."""
    parser.add_argument(
        "--cluster",
        action="store_true",
        help="in the cluster and namespace of the current kube context",
    )
    if namespace:
        parser.add_argument(
            "-n", "--namespace", metavar="NS", help="in this namespace of the cluster"
        )
    parser.add_argument(
        "--context", metavar="NAME", help="in the cluster of this kube context"
    )


def add_any_job(parser: argparse.ArgumentParser) -> None:
    """Add the name of a job that runs on this machine or in a cluster."""
    add_job(parser)
    add_cluster_options(parser)


def is_cluster_asked(args: argparse.Namespace) -> bool:
    """Whether an option says that a cluster is meant."""
    names = ("cluster", "namespace", "context", "all_namespaces")
    return any(getattr(args, name, None) for name in names)


def where(args: argparse.Namespace) -> Where:
    """Return cluster and namespace; empty fields follow the kube config."""
    from elasticdl.client.cluster import Where

    return Where(args.context or "", getattr(args, "namespace", None) or "")


def find_job(args: argparse.Namespace) -> LocalJob | ClusterJob:
    """Return the job that the arguments of a verb name.

    With an option that names a cluster: there. Otherwise the job of this machine, and
    where there is none, the one of that name that was submitted from here last.
    Raises NotFoundError with what is near.
    """
    from elasticdl import client

    if is_cluster_asked(args):
        from elasticdl.client import cluster

        return cluster.find_in_cluster(cluster.connect(where(args)), args.job)
    submitted = _records(args)
    try:
        job = client.find(args.job, args.jobs_dir)
    except NotFoundError:
        if not submitted:
            raise
        return _submitted_job(args, submitted[0])
    for record in submitted:
        print(
            f"note: this is job {args.job} of this machine; the one submitted to "
            f"namespace {record.namespace} is `elasticdl {args.verb} {args.job} -n "
            f"{record.namespace}`",
            file=sys.stderr,
        )
    return job


def find_local(args: argparse.Namespace) -> LocalJob:
    """Return a job of this machine, for verbs that work on local jobs only.

    Raises JobError for a job that was submitted to a cluster.
    """
    from elasticdl import client

    try:
        return client.find(args.job, args.jobs_dir)
    except NotFoundError:
        for record in _records(args):
            raise JobError(
                f"job {args.job} runs in a cluster (namespace {record.namespace}); "
                f"`elasticdl {args.verb}` is for jobs of this machine, there it is "
                f"`kubectl -n {record.namespace} delete pod elasticdl-{args.job}-...`"
            ) from None
        raise


def _records(args: argparse.Namespace) -> list[Record]:
    from elasticdl.client.cluster.records import read_records

    return [one for one in read_records(args.jobs_dir) if one.job == args.job]


def _submitted_job(args: argparse.Namespace, record: Record) -> ClusterJob:
    from elasticdl.client import cluster
    from elasticdl.client.cluster.records import forget

    there = cluster.Where(record.context, record.namespace)
    try:
        job = cluster.find_in_cluster(cluster.connect(there), record.job)
    except NotFoundError:
        forget(args.jobs_dir, record)
        raise NotFoundError(
            f"no job {record.job!r} on this machine, and the one that was submitted to "
            f"namespace {record.namespace} is not there any more; `elasticdl list -A` "
            "lists what is"
        ) from None
    print(f"job {record.job} in {job.place} of {record.context}:", file=sys.stderr)
    return job
