"""The sizes of all elastic jobs of a cluster, decided together: one pure function.

`plan.plan` looks at nodes, pods and jobs (`view`) and says how many workers each job is
to have, who leaves, and why. The controller calls it with what the cluster is, the
simulator with what it simulates. No clock, no files, no network, no Kubernetes client.

The measure of fairness is the weighted dominant share (dominant resource fairness,
A. Ghodsi et al., NSDI 2011): of all resources that a job holds, the one of which it
has the largest part of the cluster's supply. Growth is the progressive filling of that
paper (the job with the smallest share is given the next worker), per node instead of on
one large machine. Not of that paper are minimum sizes, giving way to other pods, and
the exchange between jobs that run already; docs/cluster.md says how they work.
"""
