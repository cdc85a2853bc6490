{{/* What a master may do, and as whom; what a locked platform compares with. */}}

{{/* The account of a job's master. */}}
{{- define "elasticdl.masterAccount" -}}
{{- if .Values.serviceAccounts.perJob -}}
{{ include "elasticdl.jobName" . }}-master
{{- else -}}
{{ .Values.serviceAccounts.master }}
{{- end -}}
{{- end -}}

{{/* Ends of the names of the Secrets that a job's release makes: `elasticdl-<job>-END`. */}}
{{- define "elasticdl.ownSecretEnds" -}}
{{ list "token" "ca" | toJson }}
{{- end -}}

{{/* A list of texts as CEL has it, of (dict "names" LIST). JSON's quotes are CEL's too. */}}
{{- define "elasticdl.celList" -}}
{{ .names | uniq | sortAlpha | toJson }}
{{- end -}}

{{/* In CEL, whether a call is a master's. */}}
{{- define "elasticdl.celByMaster" -}}
{{- $account := printf "system:serviceaccount:%s:" .Release.Namespace -}}
request.userInfo.username == '{{ $account }}{{ .Values.serviceAccounts.master }}' ||
(request.userInfo.username.startsWith('{{ $account }}elasticdl-') &&
  request.userInfo.username.endsWith('-master'))
{{- end -}}

{{/* The policies are of the whole cluster: their names hold the namespace. */}}
{{- define "elasticdl.policyName" -}}
{{ include "elasticdl.platformName" . }}-{{ .Release.Namespace }}
{{- end -}}

{{- define "elasticdl.checkLock" -}}
{{- if semverCompare "<1.30.0-0" .Capabilities.KubeVersion.Version -}}
  {{- fail (printf "platform.locked: needs Kubernetes 1.30 or newer, whose API server decides by ValidatingAdmissionPolicy; this is %s: upgrade the cluster, or take it out" .Capabilities.KubeVersion.Version) -}}
{{- end -}}
{{- end -}}
