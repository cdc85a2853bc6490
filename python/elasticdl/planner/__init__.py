"""The sizes of all elastic jobs of a cluster, decided together: one pure function.

`plan.plan` looks at nodes, pods and jobs (`view`) and says how many workers each job is
to have, who leaves, and why. The controller calls it with what the cluster is, the
simulator with what it simulates. No clock, no files, no network, no Kubernetes client.

The measure of fairness is the weighted dominant share (dominant resource fairness,
A. Ghodsi et al., NSDI 2011): of all resources that a job holds, master and PS included,
the one of which it has the largest part of the cluster's supply. Growth is the
progressive filling of that paper (the job with the smallest share is given the next
worker), per node instead of on one large machine. The rest is not of that paper. A plan
goes through these steps, each a module:

1. `carry`: who holds what: what its pods ask for, whatever its template says. A job's
   size is what it was granted: workers beyond it leave though they still run. Two views
   of free room follow: now, and once those have left.
2. `giving`: bounds; pods that wait and go before workers; floors, by priority and then
   arrival; the ceiling. For these the fewest workers of one node leave, those of the
   lowest rank and then of the largest share, and nobody goes below the floor. A pod
   gets the room that the last plan saw for it, so that room is made once.
3. `waiting`: workers that were granted and have no node. Without room they are taken
   back at once, and after five seconds if there is room and nobody comes to use it.
   `pausing` says how long their job does not grow then.
4. `growth`, into what is free now. A small worker waits while room is made for a large
   one, which it would take apart.
5. `exchange`, where nothing grew: workers of larger shares leave if the sorted shares
   are better after the growth that follows. `fairness` keeps their room, and remembers
   what brought nothing, which is why a cluster comes to rest.
"""
