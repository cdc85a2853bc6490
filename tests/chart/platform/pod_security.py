"""The restricted Pod Security Standard, as a function of a pod.

After Kubernetes' own list of controls (baseline and restricted), for pods of Linux.
"""

VOLUMES = {
    "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim",
    "projected", "secret",
}  # fmt: skip
SYSCTLS = {
    "kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_unprivileged_port_start", "net.ipv4.tcp_syncookies",
    "net.ipv4.ping_group_range", "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.tcp_keepalive_time", "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl", "net.ipv4.tcp_keepalive_probes",
}  # fmt: skip
SELINUX_TYPES = {
    "",
    "container_t",
    "container_init_t",
    "container_kvm_t",
    "container_engine_t",
}


def violations(pod):
    """Return what the standard forbids about a pod's specification, in words."""
    spec = pod["spec"]
    found = [key for key in ("hostNetwork", "hostPID", "hostIPC") if spec.get(key)]
    for volume in spec.get("volumes", []):
        found += [f"volume {kind}" for kind in volume if kind not in VOLUMES | {"name"}]
    whole = spec.get("securityContext") or {}
    found += _context(whole, "pod")
    for sysctl in whole.get("sysctls", []):
        if sysctl["name"] not in SYSCTLS:
            found.append(f"sysctl {sysctl['name']}")
    for key in ("initContainers", "containers", "ephemeralContainers"):
        for container in spec.get(key, []):
            found += _container(container, whole)
    return found


def _container(container, whole):
    name = container["name"]
    own = container.get("securityContext") or {}
    found = _context(own, name)
    if own.get("privileged"):
        found.append(f"{name}: privileged")
    if own.get("allowPrivilegeEscalation") is not False:
        found.append(f"{name}: allowPrivilegeEscalation is not false")
    if own.get("procMount", "Default") != "Default":
        found.append(f"{name}: procMount")
    if own.get("runAsNonRoot", whole.get("runAsNonRoot")) is not True:
        found.append(f"{name}: runAsNonRoot is not true")
    seccomp = (own.get("seccompProfile") or whole.get("seccompProfile") or {}).get(
        "type"
    )
    if seccomp not in ("RuntimeDefault", "Localhost"):
        found.append(f"{name}: seccomp profile {seccomp}")
    capabilities = own.get("capabilities") or {}
    if "ALL" not in capabilities.get("drop", []):
        found.append(f"{name}: capabilities not dropped")
    if set(capabilities.get("add", [])) - {"NET_BIND_SERVICE"}:
        found.append(f"{name}: capabilities added")
    found += [
        f"{name}: hostPort"
        for port in container.get("ports", [])
        if port.get("hostPort")
    ]
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        for way in ("httpGet", "tcpSocket"):
            if container.get(probe, {}).get(way, {}).get("host"):
                found.append(f"{name}: host of {probe}")
    return found


def _context(context, name):
    """Return what both a pod's and a container's security context must not say."""
    found = []
    if context.get("runAsUser") == 0:
        found.append(f"{name}: runAsUser 0")
    if context.get("runAsNonRoot") is False:
        found.append(f"{name}: runAsNonRoot is false")
    if (context.get("windowsOptions") or {}).get("hostProcess"):
        found.append(f"{name}: hostProcess")
    selinux = context.get("seLinuxOptions") or {}
    if (
        selinux.get("type", "") not in SELINUX_TYPES
        or selinux.get("user")
        or selinux.get("role")
    ):
        found.append(f"{name}: seLinuxOptions")
    if (context.get("appArmorProfile") or {}).get("type") == "Unconfined":
        found.append(f"{name}: appArmorProfile")
    if (context.get("seccompProfile") or {}).get("type") == "Unconfined":
        found.append(f"{name}: seccomp profile Unconfined")
    return found
