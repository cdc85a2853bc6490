{{/* The master's pod template. Kubernetes never lets a Job's template change, so nothing
     may be in it that changes while a job runs: the specification is mounted. */}}
{{- define "elasticdl.masterTemplate" -}}
{{- $job := include "elasticdl.job" . | fromYaml -}}
{{- $master := dict "root" . "job" $job "role" "master" -}}
metadata:
  {{- include "elasticdl.podMetadata" $master | nindent 2 }}
spec:
  {{- include "elasticdl.podSpec" $master | nindent 2 }}
{{- end -}}

{{/* The Job's name. Each run has a Job of its own: one that has ended cannot be started
     again, and Helm puts nothing new in the place of an object that it keeps. */}}
{{- define "elasticdl.masterJob" -}}
{{- $name := printf "%s-master" (include "elasticdl.jobName" .) -}}
{{- if gt (int .Values.run) 1 }}{{ $name = printf "%s-%d" $name (int .Values.run) }}{{ end -}}
{{- if gt (len $name) 63 -}}
  {{- fail (printf "the Job of run %d would be named `%s`, %d characters of at most 63: a job that is run again needs a shorter job.name" (int .Values.run) $name (len $name)) -}}
{{- end -}}
{{ $name }}
{{- end -}}

{{- define "elasticdl.masterFailurePolicy" -}}
rules:
  # Drained, preempted, evicted: not the master's fault, and not counted.
  - action: Ignore
    onPodConditions:
      - type: DisruptionTarget
        status: "True"
  # Told to leave, as by `kubectl delete pod`: the next one takes over (143).
  - action: Ignore
    onExitCodes:
      containerName: main
      operator: In
      values: [143]
  # The job's own end: usage, specification, user code, data, storage, or failed
  # otherwise (10). Not 1, with which Python ends where an import fails.
  - action: FailJob
    onExitCodes:
      containerName: main
      operator: In
      values: [2, 3, 4, 5, 6, 10]
{{- end -}}

{{- define "elasticdl.masterHash" -}}
{{ printf "%s%s" (include "elasticdl.masterTemplate" .) (include "elasticdl.masterFailurePolicy" .) | sha256sum | trunc 16 }}
{{- end -}}
