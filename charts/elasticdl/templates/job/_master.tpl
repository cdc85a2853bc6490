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

{{- define "elasticdl.masterHash" -}}
{{ include "elasticdl.masterTemplate" . | sha256sum | trunc 16 }}
{{- end -}}

{{/* What the values say, and a minute instead of Kubernetes' five on a node that does not
     answer: the next master is cheap, and workers wait for it. */}}
{{- define "elasticdl.masterTolerations" -}}
{{- $said := .tolerations | default list -}}
{{- range $key := list "node.kubernetes.io/not-ready" "node.kubernetes.io/unreachable" }}
{{- $known := false -}}
{{- range $said }}
{{- if has (.key | default $key) (list $key) }}
{{- if has (.effect | default "NoExecute") (list "NoExecute") }}{{ $known = true }}{{ end -}}
{{- end }}
{{- end }}
{{- if not $known }}
{{- $said = append $said (dict "key" $key "operator" "Exists" "effect" "NoExecute" "tolerationSeconds" 60) }}
{{- end }}
{{- end }}
{{- toYaml $said }}
{{- end -}}
