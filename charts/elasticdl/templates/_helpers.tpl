{{/* Labels of every object that Helm makes. Selectors and pods do not carry the version
     and the chart: both change with an upgrade, and a Job's pod template must not. */}}
{{- define "elasticdl.labels" -}}
{{ include "elasticdl.ownLabels" . }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* The same with others, of (dict "root" $ "own" MAPPING "more" MAPPING): the chart's own
     win over what values say of one object, and that over what they say of all. */}}
{{- define "elasticdl.labelsAnd" -}}
{{- $own := include "elasticdl.ownLabels" .root | fromYaml -}}
{{- merge $own (.own | default dict) (.more | default dict) .root.Values.commonLabels | toYaml -}}
{{- end -}}

{{- define "elasticdl.ownLabels" -}}
{{ include "elasticdl.identity" . }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* `annotations:` of an object, of (dict "root" $ "own" MAPPING); empty without any. */}}
{{- define "elasticdl.annotations" -}}
{{- with merge (dict) (.own | default dict) .root.Values.commonAnnotations -}}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end -}}
{{- end -}}

{{/* What the platform's own objects are called, or begin with. */}}
{{- define "elasticdl.platformName" -}}
{{ .Values.nameOverride | default "elasticdl" }}
{{- end -}}

{{/* An image, of (dict "root" $ "role" ROLE "own" NAME): the one that is named, or the
     stock image of that role. Without a registry its name would be one of a public
     registry, which may be anybody's: that is refused, in the sentence of
     `elasticdl.job.values.defaults`. */}}
{{- define "elasticdl.imageOrStock" -}}
{{- $images := .root.Values.images -}}
{{- if .own -}}
{{ .own }}
{{- else -}}
{{- if not $images.registry -}}
  {{- fail "images.registry: got nothing, expected the registry that the stock images are in; say it once for all jobs in the values of the platform (--set images.registry=registry.example/team), or in these; `localhost` is for images that the nodes have already; what has an image of its own (job.image) needs none" -}}
{{- end -}}
{{- $stock := printf "%s/%s:%s" (trimSuffix "/" $images.registry) (get $images .role) ($images.tag | default .root.Chart.AppVersion) -}}
{{- with get $images.digests .role }}{{ $stock = printf "%s@%s" $stock . }}{{ end -}}
{{ $stock }}
{{- end -}}
{{- end -}}

{{/* A pod's security context, of (dict "root" $ "context" MAPPING), as YAML: where users
     are the namespace's own, without those of the images. */}}
{{- define "elasticdl.securityContext" -}}
{{- $context := deepCopy (.context | default dict) -}}
{{- if .root.Values.openshift -}}
  {{- range $key := list "runAsUser" "runAsGroup" "fsGroup" -}}
    {{- if eq (get $context $key | toString) "10001" }}{{ $_ := unset $context $key }}{{ end -}}
  {{- end -}}
{{- end -}}
{{- toYaml $context -}}
{{- end -}}

{{- define "elasticdl.identity" -}}
app.kubernetes.io/name: elasticdl
app.kubernetes.io/part-of: elasticdl
{{- end -}}

{{- define "elasticdl.exporterSelector" -}}
{{ include "elasticdl.identity" . }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/component: exporter
{{- end -}}

{{- define "elasticdl.controllerSelector" -}}
{{ include "elasticdl.identity" . }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/component: controller
{{- end -}}

{{- define "elasticdl.trainingJobsSelector" -}}
{{ include "elasticdl.identity" . }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/component: training-jobs
{{- end -}}

{{/* Labels of an object of a job's release: those, and whose job it is. */}}
{{- define "elasticdl.jobLabels" -}}
{{ include "elasticdl.labels" . }}
elasticdl-job-name: {{ .Values.job.name | quote }}
{{- end -}}

{{/* The prefix of all names of a job; at most 56 characters, so that `-master` fits into
     the 63 of a Service (job.name is bounded by the schema). */}}
{{- define "elasticdl.jobName" -}}
elasticdl-{{ .Values.job.name }}
{{- end -}}

{{/* Of TensorBoard's pod, which is no replica of the job. */}}
{{- define "elasticdl.tensorboardSelector" -}}
app.kubernetes.io/component: tensorboard
elasticdl.org/tensorboard-of: {{ .Values.job.name | quote }}
{{- end -}}

{{- define "elasticdl.tokenSecret" -}}
{{ .Values.token.existingSecret | default (printf "%s-token" (include "elasticdl.jobName" .)) }}
{{- end -}}

{{/* The Secret of the job's authority; empty where calls are not encrypted. */}}
{{- define "elasticdl.authoritySecret" -}}
{{- if .Values.tls.enabled -}}
{{ .Values.tls.existingSecret | default (printf "%s-ca" (include "elasticdl.jobName" .)) }}
{{- end -}}
{{- end -}}

{{/* `https` where the job's metrics are encrypted, else empty. */}}
{{- define "elasticdl.metricsScheme" -}}
{{- if and .Values.tls.enabled .Values.tls.metrics.enabled -}}https{{- end -}}
{{- end -}}

{{/* The job with the specification's defaults below it, as YAML. The ConfigMap holds
     the user's own tree; this is for what templates have to know. */}}
{{- define "elasticdl.job" -}}
{{- $defaults := .Files.Get "files/defaults.yaml" | fromYaml -}}
{{- include "elasticdl.overlay" (dict "base" $defaults.job "over" .Values.job) -}}
{{- end -}}

{{/* A mapping laid over another one, as YAML. A value wins, false and 0 too (which
     mergeOverwrite loses); a key without a value means the default, with `drop` that
     the key goes. */}}
{{- define "elasticdl.overlay" -}}
{{- $result := .base -}}
{{- $drop := .drop -}}
{{- range $key, $value := .over -}}
  {{- $below := get $result $key -}}
  {{- if and (kindIs "map" $value) (kindIs "map" $below) -}}
    {{- $inner := include "elasticdl.overlay" (dict "base" $below "over" $value "drop" $drop) -}}
    {{- $_ := set $result $key ($inner | fromYaml) -}}
  {{- else if not (kindIs "invalid" $value) -}}
    {{- $_ := set $result $key $value -}}
  {{- else if $drop -}}
    {{- $_ := unset $result $key -}}
  {{- end -}}
{{- end -}}
{{- toYaml $result -}}
{{- end -}}

{{/* The claims with the defaults of each, as YAML of {claims}. */}}
{{- define "elasticdl.claims" -}}
{{- $defaults := .Files.Get "files/defaults.yaml" | fromYaml -}}
{{- $all := list -}}
{{- range .Values.claims -}}
  {{- $claim := include "elasticdl.overlay" (dict "base" (deepCopy $defaults.claim) "over" .) -}}
  {{- $all = append $all ($claim | fromYaml) -}}
{{- end -}}
{{- $names := list -}}
{{- range $all -}}
  {{- if has .name $names -}}
    {{- fail (printf "claims: got two of the name `%s`, expected one; take one of them out" .name) -}}
  {{- end -}}
  {{- $names = append $names .name -}}
  {{- if eq (include "elasticdl.amount" (dict "of" .size) | float64) 0.0 -}}
    {{- fail (printf "claims: got the size %s of `%s`, expected more; write it as `10Gi`" .size .name) -}}
  {{- end -}}
{{- end -}}
{{- toYaml (dict "claims" $all) -}}
{{- end -}}
