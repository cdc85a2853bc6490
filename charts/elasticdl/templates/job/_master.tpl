{{/* The master's pod template. Kubernetes never lets a Job's template change, so nothing
     may be in it that changes while a job runs: the specification is mounted. */}}
{{- define "elasticdl.masterTemplate" -}}
{{- $job := include "elasticdl.job" . | fromYaml -}}
{{- $master := dict "root" . "job" $job "role" "master" -}}
metadata:
  labels:
    {{- include "elasticdl.podLabels" $master | nindent 4 }}
    app.kubernetes.io/managed-by: {{ .Release.Service }}
    elasticdl-job-name: {{ .Values.job.name }}
    elasticdl-replica-type: master
    elasticdl-replica-index: "0"
  {{- with (include "elasticdl.podValues" $master | fromYaml).annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  {{- include "elasticdl.podSpec" $master | nindent 2 }}
{{- end -}}
