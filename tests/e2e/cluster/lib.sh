# Shared by the scripts of this folder; sourced, not run.
# shellcheck shell=bash disable=SC2034 # the names are for those who source it

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
state=$(realpath -m "${CLUSTER_STATE:-${XDG_CACHE_HOME:-$HOME/.cache}/elasticdl/cluster}")
bin=$state/bin
run=$state/run
node=$state/node
images=$state/images
store=$state/containerd
export PATH=$bin:$PATH

# The name of this cluster's cgroup, different for each state folder.
name=cluster-$(printf %s "$state" | cksum | cut -d' ' -f1)

node_name=${CLUSTER_NODE_NAME:-node1}
# CLUSTER_FAMILY=ipv6: nodes, pods and services have IPv6 addresses and no others.
# CLUSTER_FAMILY=dual: they have both, IPv4 first; services those that they ask for.
family=${CLUSTER_FAMILY:-ipv4}
node4=10.10.0.2 pods4=10.244.0.0/24 services4=10.96.0.0/16
node6=fd00:10:10::2 pods6=fd00:10:244::/112 services6=fd00:10:96::/112
case $family in
ipv4)
    node_ips=$node4 pod_cidrs=$pods4 service_cidrs=$services4
    ;;
ipv6)
    node_ips=$node6 pod_cidrs=$pods6 service_cidrs=$services6
    ;;
dual)
    node_ips=$node4,$node6 pod_cidrs=$pods4,$pods6 service_cidrs=$services4,$services6
    ;;
*)
    echo "error: CLUSTER_FAMILY is $family; expected ipv4, ipv6 or dual" >&2
    exit 2
    ;;
esac
node_ip=${node_ips%%,*} # the first one is what Kubernetes names where it names one
if [ "$family" = ipv6 ]; then
    api_service_ip=fd00:10:96::1 dns_service_ip=fd00:10:96::a
else
    api_service_ip=10.96.0.1 dns_service_ip=10.96.0.10
fi
if [ "$family" = ipv4 ]; then all_addresses=0.0.0.0; else all_addresses=::; fi
api_port=${CLUSTER_PORT:-6443}
registry_port=${CLUSTER_REGISTRY_PORT:-5000}

say() { printf '%s  %s\n' "$(date +%T)" "$*" >&2; }
die() { say "error: $*"; exit 1; }

# A pid file holds "PID START", START being the process's start time in clock
# ticks, so that a pid used again by another process is never taken for ours.
start_of() { awk '{print $22}' "/proc/$1/stat" 2>/dev/null || true; }
record() { printf '%s %s\n' "$2" "$(start_of "$2")" > "$run/$1.pid"; }
pid_of() {
    local pid start
    [ -f "$run/$1.pid" ] || return 1
    read -r pid start < "$run/$1.pid" || return 1
    [ -n "$start" ] && [ "$(start_of "$pid")" = "$start" ] || return 1
    printf '%s\n' "$pid"
}

# Runs a command inside the node's namespaces.
inside() {
    local pid
    pid=$(pid_of init) || die "no cluster is up in $state"
    nsenter --target "$pid" --mount --uts --ipc --net --pid --cgroup -- "$@"
}

# Installs the Debian packages whose programs are missing: PROGRAM:PACKAGE...
install_missing() {
    local pair need=()
    for pair in "$@"; do
        command -v "${pair%%:*}" >/dev/null || need+=("${pair#*:}")
    done
    [ ${#need[@]} -gt 0 ] || return 0
    say "installing ${need[*]}"
    apt-get install -y --no-install-recommends "${need[@]}" >/dev/null 2>&1 ||
        { apt-get update >/dev/null && apt-get install -y --no-install-recommends "${need[@]}" >/dev/null; }
}

# Compiles a program of the module in this folder: output below $bin, package, further
# flags of go build. Nothing if that was made of the same module, also where Go's own
# cache is lost. The compiler looks for garbage rarely: a seventh less of its CPU time.
compiled() {
    local out=$1 pkg=$2 of
    shift 2
    of=$({ cat go.mod go.sum; find . -maxdepth 1 -name '*.go' -exec cat {} +; go version
           echo "$pkg $*"; } | cksum)
    if [ -x "$bin/$out" ] && [ "$(cat "$bin/$out.of" 2>/dev/null)" = "$of" ]; then return 0; fi
    GOGC=400 nice go build -trimpath -o "$bin/$out" "$@" "$pkg"
    echo "$of" > "$bin/$out.of"
}

# Buildah with its storage in the state folder.
store() {
    buildah --root "$state/storage" --runroot "$state/storage-run" --storage-driver overlay "$@"
}
