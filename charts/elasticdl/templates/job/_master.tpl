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

{{- define "elasticdl.masterHash" -}}
{{ include "elasticdl.masterTemplate" . | sha256sum | trunc 16 }}
{{- end -}}
