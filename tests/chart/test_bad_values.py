"""Values that are refused, each with a line that says which and why."""

import helm_python as helm
import pytest
from elasticdl.job.values.file import parse_values

from tests.chart.rendering import render

HEAD = "kind: job\njob:\n  name: digits\n  model: {definition: a.b}\n"
DATA = "  data: {training: data}\n"
GOOD = HEAD + DATA
PLATFORM = "kind: platform\n"

# What stands in the file, and what Helm says.
REFUSED_BY_THE_SCHEMA = {
    "a misspelt field": (
        GOOD + "  trainings: {}\n",
        "at '/job': additional properties 'trainings' not allowed",
    ),
    "a misspelt field of a role": (
        GOOD + "  worker: {replica: 3}\n",
        "at '/job/worker': additional properties 'replica' not allowed",
    ),
    "a misspelt section of the chart": (
        GOOD + "pod: {}\n",
        "at '': additional properties 'pod' not allowed",
    ),
    "a misspelt role": (
        GOOD + "pods: {workers: {}}\n",
        "at '/pods': additional properties 'workers' not allowed",
    ),
    "a misspelt key of a role's pods": (
        GOOD + "pods: {worker: {toleration: []}}\n",
        "at '/pods/worker': additional properties 'toleration' not allowed",
    ),
    "a misspelt key inside an affinity": (
        GOOD + "pods: {common: {affinity: {nodeAffinty: {}}}}\n",
        "at '/pods/common/affinity': additional properties 'nodeAffinty' not allowed",
    ),
    "a number as the value of a variable": (
        GOOD + "pods: {ps: {env: [{name: A, value: 3}]}}\n",
        "at '/pods/ps/env/0/value': got number, want null or string",
    ),
    "a volume mount without a path": (
        GOOD + "pods: {worker: {volumeMounts: [{name: a}]}}\n",
        "at '/pods/worker/volumeMounts/0': missing property 'mountPath'",
    ),
    "a port as text in a sidecar": (
        GOOD
        + "pods: {worker: {sidecars: [{name: a, ports: [{containerPort: 'x'}]}]}}\n",
        "at '/pods/worker/sidecars/0/ports/0/containerPort': got string, want integer",
    ),
    "a misspelt key of who may read metrics": (
        GOOD + "networkPolicy: {metricsFrom: [{podSelectr: {}}]}\n",
        "at '/networkPolicy/metricsFrom/0': additional properties 'podSelectr' not",
    ),
    "snake case": (
        GOOD + "  training: {batch_size: 8}\n",
        "at '/job/training': additional properties 'batch_size' not allowed",
    ),
    "a section outside of the job": (
        GOOD + "training: {epochs: 3}\n",
        "at '': additional properties 'training' not allowed",
    ),
    "another kind": (
        GOOD.replace("kind: job", "kind: jobs"),
        "at '/kind': value must be one of 'job', 'platform'",
    ),
    "no job": ("kind: job\n", "at '': missing property 'job'"),
    "an empty job": ("kind: job\njob:\n", "at '/job': got null, want object"),
    "no name": (
        "kind: job\njob:\n  model: {definition: a.b}\n" + DATA,
        "at '/job': missing property 'name'",
    ),
    "no model": (
        "kind: job\njob:\n  name: digits\n" + DATA,
        "at '/job': missing property 'model'",
    ),
    "a name with capitals": (
        GOOD.replace("digits", "Digits"),
        "at '/job/name': 'Digits' does not match pattern",
    ),
    "a name with a dot": (
        GOOD.replace("digits", "my.job"),
        "at '/job/name': 'my.job' does not match pattern",
    ),
    "a name that ends with a dash": (
        GOOD.replace("digits", "digits-"),
        "at '/job/name': 'digits-' does not match pattern",
    ),
    "a name too long for a Service": (
        GOOD.replace("digits", "d" * 60),
        "at '/job/name': maxLength: got 60, want 46",
    ),
    "a name that is a number": (
        GOOD.replace("digits", "2024"),
        "at '/job/name': got number, want string",
    ),
    "a number in quotes": (
        GOOD + "  worker: {replicas: '3'}\n",
        "at '/job/worker/replicas': got string, want null or integer",
    ),
    "a class that is no number": (
        GOOD + "  training: {classWeight: {cat: 2.0}}\n",
        "at '/job/training/classWeight': additional properties 'cat' not allowed",
    ),
    "a fraction of a worker": (
        GOOD + "  worker: {replicas: 2.5}\n",
        "at '/job/worker/replicas': got number, want null or integer",
    ),
    "no worker": (
        GOOD + "  worker: {replicas: 0}\n",
        "at '/job/worker/replicas': minimum: got 0, want 1",
    ),
    "a priority that is true": (
        GOOD + "  worker: {priority: true}\n",
        "at '/job/worker/priority': got boolean, want null or number or string",
    ),
    "a share of PS with high priority": (
        GOOD + "  ps: {priority: 0.5}\n",
        "at '/job/ps/priority': got number, want null or string",
    ),
    "memory in a unit that is none": (
        GOOD + "  worker: {resources: {memory: 4GB}}\n",
        "at '/job/worker/resources/memory': '4GB' does not match pattern",
    ),
    "no CPU": (
        GOOD + "  ps: {resources: {cpu: 0}}\n",
        "at '/job/ps/resources/cpu': exclusiveMinimum: got 0, want 0",
    ),
    "a mode that is none": (
        GOOD + "  ps: {mode: synchronous}\n",
        "at '/job/ps/mode': value must be one of 'async', 'sync'",
    ),
    "a strategy that is none": (
        GOOD + "  strategy: AllReduce\n",
        "at '/job/strategy': value must be one of 'parameterServer', 'local', "
        "'allReduce'",
    ),
    "a pull policy that is none": (
        GOOD + "  imagePullPolicy: always\n",
        "at '/job/imagePullPolicy': value must be one of 'Always', 'IfNotPresent'",
    ),
    "an environment of numbers": (
        GOOD + "  env: {A: 1}\n",
        "at '/job/env/A': got number, want string",
    ),
    "a volume without a path": (
        GOOD + "  volumes: [{claimName: a}]\n",
        "at '/job/volumes/0': missing property 'mountPath'",
    ),
    "a volume on a path that is none": (
        GOOD + "  volumes: [{claimName: a, mountPath: data}]\n",
        "at '/job/volumes/0/mountPath': 'data' does not match pattern '^/",
    ),
    "a label of two words": (
        GOOD + "commonLabels: {'cost centre': a}\n",
        "at '/commonLabels': additional properties 'cost centre' not allowed",
    ),
    "a label's value of two words": (
        GOOD + "pods: {ps: {labels: {team: 'a b'}}}\n",
        "at '/pods/ps/labels/team': 'a b' does not match pattern",
    ),
    "an annotation of two words": (
        GOOD + "commonAnnotations: {'a b': c}\n",
        "at '/commonAnnotations': additional properties 'a b' not allowed",
    ),
    "a node's label of two words": (
        GOOD + "pods: {common: {nodeSelector: {pool: 'a b'}}}\n",
        "at '/pods/common/nodeSelector/pool': 'a b' does not match pattern",
    ),
    "a toleration with a word of its own": (
        GOOD + "pods: {common: {tolerations: [{operator: Exist}]}}\n",
        "at '/pods/common/tolerations/0/operator': value must be one of 'Exists'",
    ),
    "a toleration of an effect that is none": (
        GOOD + "pods: {common: {tolerations: [{key: a, effect: noschedule}]}}\n",
        "at '/pods/common/tolerations/0/effect': value must be one of 'NoSchedule'",
    ),
    "a variable with an equals sign": (
        GOOD + "pods: {ps: {env: [{name: A=B, value: c}]}}\n",
        "at '/pods/ps/env/0/name': 'A=B' does not match pattern",
    ),
    "a volume with capitals": (
        GOOD + "pods: {ps: {volumes: [{name: My, emptyDir: {}}]}}\n",
        "at '/pods/ps/volumes/0/name': 'My' does not match pattern",
    ),
    "a volume's size in a unit that is none": (
        GOOD + "pods: {ps: {volumes: [{name: a, emptyDir: {sizeLimit: 5GB}}]}}\n",
        "at '/pods/ps/volumes/0/emptyDir/sizeLimit': '5GB' does not match pattern",
    ),
    "a mount out of its volume": (
        GOOD
        + "pods: {ps: {volumeMounts: [{name: a, mountPath: /a, subPath: ../b}]}}\n",
        "at '/pods/ps/volumeMounts/0/subPath': '../b' does not match pattern",
    ),
    "a sidecar without an image": (
        GOOD + "pods: {ps: {sidecars: [{name: a}]}}\n",
        "at '/pods/ps/sidecars/0': missing property 'image'",
    ),
    "a port that is none": (
        GOOD + "pods: {ps: {sidecars: [{name: a, image: b, ports:\n"
        "  [{containerPort: 0}]}]}}\n",
        "at '/pods/ps/sidecars/0/ports/0/containerPort': minimum: got 0, want 1",
    ),
    "a user below all numbers": (
        GOOD + "pods: {ps: {securityContext: {runAsUser: -5}}}\n",
        "at '/pods/ps/securityContext/runAsUser': minimum: got -5, want 0",
    ),
    "a scheduler of two words": (
        GOOD + "pods: {ps: {schedulerName: 'a b'}}\n",
        "at '/pods/ps/schedulerName': 'a b' does not match pattern",
    ),
    "an image of two words": (
        GOOD + "  image: 'my image'\n",
        "at '/job/image': 'my image' does not match pattern",
    ),
    "an image of a role with capitals": (
        GOOD + "  ps: {image: 'Mine:1'}\n",
        "at '/job/ps/image': 'Mine:1' does not match pattern",
    ),
    "a folder of the node that is relative": (
        GOOD + "  volumes: [{hostPath: a, mountPath: /x}]\n",
        "at '/job/volumes/0/hostPath': 'a' does not match pattern",
    ),
    "more workers than a cluster has": (
        GOOD + "  worker: {replicas: 100000000}\n",
        "at '/job/worker/replicas': maximum: got 1",
    ),
    "a proxy of two words": (
        GOOD + "proxy: {https: 'my proxy'}\n",
        "at '/proxy/https': 'my proxy' does not match pattern",
    ),
    "a dashboards' label of two words": (
        PLATFORM + "monitoring: {dashboards: {enabled: true, label: 'a b'}}\n",
        "at '/monitoring/dashboards/label': 'a b' does not match pattern",
    ),
    "an alert's label that Prometheus has not": (
        PLATFORM + "monitoring: {rules: {alertLabels: {my-team: a}}}\n",
        "at '/monitoring/rules/alertLabels': additional properties 'my-team' not",
    ),
    "volumes that are no list": (
        GOOD + "  volumes: {claimName: a}\n",
        "at '/job/volumes': got object, want null or array",
    ),
    "tolerations that are no list": (
        GOOD + "pods: {common: {tolerations: {key: a}}}\n",
        "at '/pods/common/tolerations': got object, want null or array",
    ),
    "an annotation that is a number": (
        GOOD + "pods: {ps: {annotations: {a: 1}}}\n",
        "at '/pods/ps/annotations/a': got number, want string",
    ),
    "state on a relative path": (
        GOOD + "state: {mountPath: data}\n",
        "at '/state/mountPath': 'data' does not match pattern '^/",
    ),
    "a folder out of the claim": (
        GOOD + "state: {subPath: ../other}\n",
        "at '/state/subPath': '../other' does not match pattern",
    ),
    "a policy that is no truth": (
        GOOD + "networkPolicy: {enabled: 'no'}\n",
        "at '/networkPolicy/enabled': got string, want null or boolean",
    ),
    "two sources in one volume": (
        GOOD
        + "pods: {ps: {volumes:\n  [{name: a, emptyDir: {}, hostPath: {path: /b}}]}}\n",
        "at '/pods/ps/volumes/0': maxProperties: got 3, want 2",
    ),
    "two sources in one projection": (
        GOOD + "pods: {ps: {volumes: [{name: a, projected: {sources:\n"
        "  [{secret: {name: a}, configMap: {name: b}}]}}]}}\n",
        "at '/pods/ps/volumes/0/projected/sources/0': maxProperties: got 2, want 1",
    ),
    "a ConfigMap without a name": (
        GOOD + "pods: {ps: {volumes: [{name: a, configMap: {}}]}}\n",
        "at '/pods/ps/volumes/0/configMap': missing property 'name'",
    ),
    "a Secret without a name": (
        GOOD + "pods: {ps: {volumes: [{name: a, secret: {}}]}}\n",
        "at '/pods/ps/volumes/0/secret': missing property 'secretName'",
    ),
    "a claim of two words": (
        GOOD + "pods: {ps: {volumes: [{name: a,\n"
        "  persistentVolumeClaim: {claimName: 'a b'}}]}}\n",
        "at '/pods/ps/volumes/0/persistentVolumeClaim/claimName': 'a b' does not match",
    ),
    "a variable from nowhere": (
        GOOD + "pods: {ps: {env: [{name: A, valueFrom: {}}]}}\n",
        "at '/pods/ps/env/0/valueFrom': minProperties: got 0, want 1",
    ),
    "a variable from two places": (
        GOOD + "pods: {ps: {env: [{name: A, valueFrom: {fieldRef: {fieldPath: a},\n"
        "  secretKeyRef: {name: a, key: b}}}]}}\n",
        "at '/pods/ps/env/0/valueFrom': maxProperties: got 2, want 1",
    ),
    "a variable with two values": (
        GOOD + "pods: {ps: {env: [{name: A, value: a,\n"
        "  valueFrom: {fieldRef: {fieldPath: b}}}]}}\n",
        "at '/pods/ps/env/0/value': value must be one of ''",
    ),
    "a key of no Secret": (
        GOOD + "pods: {ps: {env: [{name: A, valueFrom: {secretKeyRef: {key: b}}}]}}\n",
        "at '/pods/ps/env/0/valueFrom/secretKeyRef': missing property 'name'",
    ),
    "an environment from nowhere": (
        GOOD + "pods: {ps: {envFrom: [{}]}}\n",
        "at '/pods/ps/envFrom/0': missing property 'secretRef'",
    ),
    "an environment from two places": (
        GOOD + "pods: {ps: {envFrom: [{secretRef: {name: a},\n"
        "  configMapRef: {name: b}}]}}\n",
        "at '/pods/ps/envFrom/0/secretRef': got object, want null",
    ),
    "a host's address that is none": (
        GOOD + "pods: {ps: {hostAliases: [{ip: 999.1.1.1, hostnames: [a]}]}}\n",
        "at '/pods/ps/hostAliases/0/ip': '999.1.1.1' is not valid ipv4",
    ),
    "a host of two words": (
        GOOD + "pods: {ps: {hostAliases: [{ip: '::1', hostnames: ['a b']}]}}\n",
        "at '/pods/ps/hostAliases/0/hostnames/0': 'a b' does not match pattern",
    ),
    "a name server by its name": (
        GOOD + "pods: {ps: {dnsConfig: {nameservers: [dns.example]}}}\n",
        "at '/pods/ps/dnsConfig/nameservers/0': 'dns.example' is not valid ipv4",
    ),
    "more name servers than a resolver asks": (
        GOOD + "pods: {ps: {dnsConfig: {nameservers:\n"
        "  [10.0.0.1, 10.0.0.2, 10.0.0.3, 10.0.0.4]}}}\n",
        "at '/pods/ps/dnsConfig/nameservers': maxItems: got 4, want 3",
    ),
    "a domain of two words": (
        GOOD + "pods: {ps: {dnsConfig: {searches: ['a b']}}}\n",
        "at '/pods/ps/dnsConfig/searches/0': 'a b' does not match pattern",
    ),
    "an option of the resolver without a name": (
        GOOD + "pods: {ps: {dnsConfig: {options: [{value: '1'}]}}}\n",
        "at '/pods/ps/dnsConfig/options/0': missing property 'name'",
    ),
    "a hook that does nothing": (
        GOOD + "pods: {ps: {lifecycle: {preStop: {}}}}\n",
        "at '/pods/ps/lifecycle/preStop': minProperties: got 0, want 1",
    ),
    "a device claim of nothing": (
        GOOD + "pods: {ps: {resourceClaims: [{name: a}]}}\n",
        "at '/pods/ps/resourceClaims/0': minProperties: got 1, want 2",
    ),
    "half a GPU of a sidecar": (
        GOOD + "pods: {ps: {sidecars: [{name: a, image: b,\n"
        "  resources: {limits: {nvidia.com/gpu: 0.5}}}]}}\n",
        "at '/pods/ps/sidecars/0/resources/limits/nvidia.com~1gpu': multipleOf: got",
    ),
    "half a GPU of a sidecar as text": (
        GOOD + "pods: {ps: {sidecars: [{name: a, image: b,\n"
        "  resources: {limits: {nvidia.com/gpu: 500m}}}]}}\n",
        "at '/pods/ps/sidecars/0/resources/limits/nvidia.com~1gpu': '500m' does not",
    ),
    "a reader of metrics who is nobody": (
        GOOD + "networkPolicy: {metricsFrom: [{}]}\n",
        "at '/networkPolicy/metricsFrom/0': minProperties: got 0, want 1",
    ),
    "addresses without their number of bits": (
        GOOD + "networkPolicy: {metricsFrom: [{ipBlock: {cidr: 10.0.0.0}}]}\n",
        "at '/networkPolicy/metricsFrom/0/ipBlock/cidr': '10.0.0.0' does not match",
    ),
    "addresses with too many bits": (
        GOOD + "networkPolicy: {metricsFrom: [{ipBlock: {cidr: '::/129'}}]}\n",
        "at '/networkPolicy/metricsFrom/0/ipBlock/cidr': '::/129' does not match",
    ),
    "addresses but for none": (
        GOOD + "networkPolicy: {metricsFrom:\n"
        "  [{ipBlock: {cidr: 10.0.0.0/8, except: [some]}}]}\n",
        "at '/networkPolicy/metricsFrom/0/ipBlock/except/0': 'some' does not match",
    ),
    "addresses that are pods": (
        GOOD + "networkPolicy: {metricsFrom:\n"
        "  [{ipBlock: {cidr: 10.0.0.0/8}, podSelector: {}}]}\n",
        "at '/networkPolicy/metricsFrom/0/podSelector': got object, want null",
    ),
    "a claim without a name": (
        PLATFORM + "claims: [{size: 1Gi}]\n",
        "at '/claims/0': missing property 'name'",
    ),
    "a claim with another access mode": (
        PLATFORM + "claims: [{name: a, accessMode: RWX}]\n",
        "at '/claims/0/accessMode': value must be one of 'ReadWriteMany'",
    ),
    "a claim's size without a unit it knows": (
        PLATFORM + "claims: [{name: a, size: 10GB}]\n",
        "at '/claims/0/size': '10GB' does not match pattern",
    ),
    "a priority that is no number": (
        PLATFORM + "priorityClasses: {high: {value: high}}\n",
        "at '/priorityClasses/high/value': got string, want null or integer",
    ),
    "a priority above those of users": (
        PLATFORM + "priorityClasses: {high: {value: 3000000000}}\n",
        "at '/priorityClasses/high/value': maximum: got 3",
    ),
    "a priority below all numbers": (
        PLATFORM + "priorityClasses: {low: {value: -3000000000}}\n",
        "at '/priorityClasses/low/value': minimum: got -3",
    ),
    "a class of two words": (
        PLATFORM + "priorityClasses: {high: {name: my high}}\n",
        "at '/priorityClasses/high/name': 'my high' does not match pattern",
    ),
    "a class with lines of its own": (
        PLATFORM + 'priorityClasses: {low: {name: "a\\nvalue: 1"}}\n',
        "at '/priorityClasses/low/name'",
    ),
    "an unknown class": (
        PLATFORM + "priorityClasses: {medium: {value: 1}}\n",
        "at '/priorityClasses': additional properties 'medium' not allowed",
    ),
}
REFUSED_BY_A_TEMPLATE = {
    "two classes of one name": (
        PLATFORM + "priorityClasses: {high: {name: one}, low: {name: one}}\n",
        "priorityClasses: got the name `one` twice, expected two classes",
    ),
    "two claims of one name": (
        PLATFORM + "claims: [{name: a}, {name: a}]\n",
        "claims: got two of the name `a`, expected one",
    ),
    "a claim of nothing": (
        PLATFORM + "claims: [{name: a, size: 0Gi}]\n",
        "claims: got the size 0Gi of `a`, expected more",
    ),
    "a scrape that outlasts its interval": (
        PLATFORM + "monitoring: {podMonitor: {interval: 500ms, scrapeTimeout: 1s}}\n",
        "monitoring.podMonitor.scrapeTimeout: got 1s, expected at most the interval, "
        "500ms: Prometheus takes no such target; lower it, or raise the interval",
    ),
    "two authorities": (
        GOOD + "tls: {existingSecret: a, certManager: {issuer: b}}\n",
        "tls: got both existingSecret `a` and certManager.issuer `b`",
    ),
    "a sidecar in the role's place": (
        GOOD + "pods: {worker: {sidecars: [{name: main, image: b}]}}\n",
        "got two containers of the name `main`, expected one",
    ),
    "two volumes of one name": (
        GOOD + "pods: {common: {volumes: &v [{name: a, emptyDir: {}}]},\n"
        "  ps: {volumes: *v}}\n",
        "pods.ps.volumes: got two of the name `a`, expected one",
    ),
    "a class of the system": (
        PLATFORM + "priorityClasses: {high: {name: system-training}}\n",
        "priorityClasses.high.name: got `system-training`, expected a name that does",
    ),
    "workers above their PS": (
        PLATFORM + "priorityClasses: {low: {value: 7}}\n",
        "priorityClasses.high.value: got -5, expected at least that of `low`, 7",
    ),
    "a name under which another job shows itself": (
        GOOD.replace("digits", "digits-status"),
        "job.name: got `digits-status`, expected another end than `-status`",
    ),
    "a job of no kind": (
        GOOD.replace("kind: job\n", ""),
        "these values hold a `job:`, but no line `kind: job`: add it at the top",
    ),
    "a platform with a job": (
        GOOD.replace("kind: job", "kind: platform"),
        "A platform has no `job:`",
    ),
    "claims in a job": (
        GOOD + "claims: [{name: a}]\n",
        "`claims` belongs to the platform's release and does nothing in a job's",
    ),
    "rights in a job": (
        GOOD + "rbac: {create: false}\n",
        "`rbac` belongs to the platform's release",
    ),
    "pods in a platform": (
        PLATFORM + "pods: {common: {annotations: {a: b}}}\n",
        "`pods` belongs to a job's values and does nothing in the platform's: take it "
        "out, or add `kind: job`",
    ),
    "images in a platform": (
        "images: {tag: v1}\n",
        "`images` belongs to a job's values",
    ),
    "a section of comments": (
        GOOD + "pods:\n  # common: {}\n",
        "`pods:` holds nothing: take the line out for its defaults",
    ),
    "a key of the chart without a value": (
        GOOD + "state: {mountPath: }\n",
        "`state.mountPath:` holds nothing: take the line out for its default",
    ),
    "another namespace": (
        GOOD + "  namespace: other\n",
        "job.namespace is `other`, but the release goes to `ml`, where its master "
        "looks for everything: install with `-n other`, or take job.namespace out",
    ),
}
ALL = {**REFUSED_BY_THE_SCHEMA, **REFUSED_BY_A_TEMPLATE}


@pytest.mark.parametrize(("text", "message"), ALL.values(), ids=list(ALL))
def test_a_bad_file_is_refused_in_one_line_that_says_why(text, message):
    with pytest.raises(helm.HelmError) as refusal:
        render(helm.values_from_yaml(text))
    assert message in str(refusal.value)


@pytest.mark.parametrize(
    "text",
    [
        text
        for text, _ in REFUSED_BY_THE_SCHEMA.values()
        if not text.startswith(PLATFORM)
    ],
    ids=[
        name
        for name, (text, _) in REFUSED_BY_THE_SCHEMA.items()
        if not text.startswith(PLATFORM)
    ],
)
def test_what_the_chart_refuses_the_command_line_refuses_too(text):
    values, problems = parse_values(text, source="bad.yaml")
    assert values is None
    assert all(problem.place.startswith("bad.yaml:") for problem in problems)


def test_a_key_of_kubernetes_with_null_is_left_to_the_cluster():
    pods = "pods: {common: {securityContext: {runAsUser: null, fsGroup: null}}}\n"
    assert parse_values(GOOD + pods, source="good.yaml")[1] == []
    assert render(helm.values_from_yaml(GOOD + pods))


# What is at the border of the rules above, as Kubernetes takes it.
TAKEN = {
    "volumes": "[{name: a}, {name: b, secret: {secretName: x.y}},\n"
    "  {name: c, projected: {sources: [{secret: {name: a}}]}}]",
    "env": "[{name: A, value: null}, {name: C, valueFrom: null, value: a},\n"
    "  {name: B, value: '', valueFrom: {fieldRef: {fieldPath: metadata.name}}}]",
    "envFrom": "[{secretRef: {name: a}, configMapRef: null},\n"
    "  {prefix: A, configMapRef: {name: b}}]",
    "hostAliases": "[{ip: '::1', hostnames: [a.b]}, {ip: 10.0.0.1}]",
    "dnsConfig": "{nameservers: [1.1.1.1, '2001:db8::1'], searches: [a.b., _x.c, .],\n"
    "  options: [{name: ndots, value: '1'}, {name: edns0}]}",
    "lifecycle": "{preStop: {sleep: {seconds: 1}}}",
    "resourceClaims": "[{name: a, resourceClaimName: b}]",
    "sidecars": "[{name: a, image: b, resources:\n"
    "  {limits: {nvidia.com/gpu: 2, cpu: 0.5}, requests: {nvidia.com/gpu: '2'}}}]",
    "affinity": "{}",
}


@pytest.mark.parametrize("key", TAKEN)
def test_what_is_at_the_border_is_taken_by_both(key):
    text = f"{GOOD}pods: {{ps: {{{key}: {TAKEN[key]}}}}}\n"
    assert parse_values(text, source="good.yaml")[1] == []
    assert render(helm.values_from_yaml(text))


def test_readers_of_metrics_may_be_addresses_of_both_families():
    text = GOOD + (
        "networkPolicy: {metricsFrom: [{podSelector: {}, ipBlock: null},\n"
        "  {ipBlock: {cidr: 10.0.0.0/8, except: [10.1.0.0/16]}},\n"
        "  {ipBlock: {cidr: '2001:db8::/32'}}, {ipBlock: {cidr: '::/0'}}]}\n"
    )
    assert parse_values(text, source="good.yaml")[1] == []
    assert render(helm.values_from_yaml(text))


def test_a_scrape_may_take_the_whole_interval():
    for times in ("interval: 1m, scrapeTimeout: 60s", "interval: 5s"):
        text = PLATFORM + f"monitoring: {{podMonitor: {{{times}}}}}\n"
        assert render(helm.values_from_yaml(text))


def test_the_good_file_that_the_bad_ones_are_made_of_is_good():
    assert parse_values(GOOD, source="good.yaml")[1] == []
    assert render(helm.values_from_yaml(GOOD))
    assert render(helm.values_from_yaml(PLATFORM))


def test_all_mistakes_of_a_section_are_told_at_once():
    text = GOOD + "  worker: {replicas: 0, min: -1, priorities: low}\n"
    with pytest.raises(helm.HelmError) as refusal:
        render(helm.values_from_yaml(text))
    for part in (
        "'priorities' not allowed",
        "minimum: got 0, want 1",
        "got -1, want 0",
    ):
        assert part in str(refusal.value)


def test_the_namespace_of_the_release_may_be_said_in_the_file():
    values = helm.values_from_yaml(GOOD + "  namespace: ml\n")
    assert render(values, namespace="ml")
