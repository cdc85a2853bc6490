{{/* The kind of release, `job` or `platform`. Every template asks by this, so that values
     which cannot be meant are refused before anything is made of them. */}}
{{- define "elasticdl.kind" -}}
{{- $kind := .Values.kind -}}
{{- $defaults := .Files.Get "files/defaults.yaml" | fromYaml -}}
{{- if and (eq $kind "platform") (hasKey .Values "job") -}}
  {{- fail "these values hold a `job:`, but no line `kind: job`: add it at the top of the job's values file. A platform has no `job:`" -}}
{{- end -}}
{{- range $section, $keys := $defaults.chart -}}
  {{- if not (hasKey $.Values $section) -}}
    {{- fail (printf "`%s:` holds nothing: take the line out for its defaults, or write its keys below it" $section) -}}
  {{- end -}}
  {{- if kindIs "map" $keys -}}
    {{- range $key, $below := $keys -}}
      {{- if not (hasKey (get $.Values $section) $key) -}}
        {{- fail (printf "`%s.%s:` holds nothing: take the line out for its default, or give a value" $section $key) -}}
      {{- end -}}
      {{- /* Elsewhere null in it has a meaning, as in a security context. */}}
      {{- if and (kindIs "map" $below) (or (eq $key "trainingJobs") (has $section (list "images" "monitoring" "platform" "priorityClasses" "tls"))) -}}
        {{- range $inner, $_ := $below -}}
          {{- if not (hasKey (get (get $.Values $section) $key) $inner) -}}
            {{- fail (printf "`%s.%s.%s:` holds nothing: take the line out for its default, or give a value" $section $key $inner) -}}
          {{- end -}}
        {{- end -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- $others := eq $kind "job" | ternary $defaults.platformOnly $defaults.jobOnly -}}
{{- range $section := $others -}}
  {{- $value := $.Values -}}
  {{- $default := $defaults.chart -}}
  {{- range splitList "." $section -}}
    {{- $value = get $value . -}}
    {{- $default = get $default . -}}
  {{- end -}}
  {{- if ne (toJson $value) (toJson $default) -}}
    {{- if eq $kind "job" -}}
      {{- fail (printf "`%s` belongs to the platform's release and does nothing in a job's: take it out here, and set it there" $section) -}}
    {{- else -}}
      {{- fail (printf "`%s` belongs to a job's values and does nothing in the platform's: take it out, or add `kind: job` and the `job:`" $section) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- if and (eq $kind "platform") (not (or $.Values.monitoring.exporter.enabled $.Values.controller.enabled $.Values.controller.trainingJobs.enabled)) -}}
  {{- if ne (omit $.Values.images "registry" "pullSecrets" | toJson) (omit $defaults.chart.images "registry" "pullSecrets" | toJson) -}}
    {{- fail "`images` belongs to a job's values and does nothing in the platform's, which runs no exporter and no controller, but for `registry` and `pullSecrets`: take it out, put it into `jobs.defaults`, or add `kind: job` and the `job:`" -}}
  {{- end -}}
{{- end -}}
{{- with .Values.monitoring.podMonitor -}}
  {{- if and .scrapeTimeout (gt (include "elasticdl.milliseconds" .scrapeTimeout | int64) (include "elasticdl.milliseconds" .interval | int64)) -}}
    {{- fail (printf "monitoring.podMonitor.scrapeTimeout: got %s, expected at most the interval, %s: Prometheus takes no such target; lower it, or raise the interval" .scrapeTimeout .interval) -}}
  {{- end -}}
{{- end -}}
{{- if eq $kind "job" }}{{ include "elasticdl.takeDefaults" $ }}{{ end -}}
{{- range $key, $_ := $.Values.commonLabels -}}
  {{- if regexMatch "^(app\\.kubernetes\\.io/|helm\\.sh/|elasticdl)" $key -}}
    {{- fail (printf "commonLabels: got `%s`, expected other labels than the chart's own: choose another name" $key) -}}
  {{- end -}}
{{- end -}}
{{- if eq $kind "job" -}}
  {{- if and .Values.tls.existingSecret .Values.tls.certManager.issuer -}}
    {{- fail (printf "tls: got both existingSecret `%s` and certManager.issuer `%s`, expected one authority: take one of them out" .Values.tls.existingSecret .Values.tls.certManager.issuer) -}}
  {{- end -}}
  {{- if and .Values.tls.metrics.enabled (not .Values.tls.enabled) -}}
    {{- fail "tls.metrics.enabled: metrics have the certificates of tls.enabled, which is false: set it, or take tls.metrics out" -}}
  {{- end -}}
  {{- if and .Values.tls.metrics.podMonitor.enabled (not .Values.tls.metrics.enabled) -}}
    {{- fail "tls.metrics.podMonitor.enabled: it is for metrics that are encrypted: set tls.metrics.enabled, or take it out and let the platform make its PodMonitor (monitoring.podMonitor)" -}}
  {{- end -}}
  {{- range $end := list "-status" "-history" -}}
    {{- with $.Values.job.name -}}
      {{- if hasSuffix $end . -}}
        {{- fail (printf "job.name: got `%s`, expected another end than `%s`: the job `%s` shows itself in the ConfigMap elasticdl-%s; choose another name" . $end (trimSuffix $end .) .) -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
  {{- with .Values.job.namespace -}}
    {{- if ne . $.Release.Namespace -}}
      {{- fail (printf "job.namespace is `%s`, but the release goes to `%s`, where its master looks for everything: install with `-n %s`, or take job.namespace out" . $.Release.Namespace .) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- if eq $kind "job" }}{{ include "elasticdl.checkJob" $ }}{{ end -}}
{{- $kind -}}
{{- end -}}

{{/* A time as Prometheus has it (`15s`, `500ms`, `1m`). */}}
{{- define "elasticdl.milliseconds" -}}
{{- $unit := regexFind "[a-z]+$" . -}}
{{ mul (trimSuffix $unit . | int64) (get (dict "ms" 1 "s" 1000 "m" 60000) $unit) }}
{{- end -}}

{{/* `release A in namespace B` of an object, or empty where no Helm release owns it. */}}
{{- define "elasticdl.owner" -}}
{{- $notes := dig "metadata" "annotations" dict . -}}
{{- with get $notes "meta.helm.sh/release-name" -}}
release `{{ . }}` in namespace `{{ get $notes "meta.helm.sh/release-namespace" }}`
{{- end -}}
{{- end -}}

{{- define "elasticdl.self" -}}
release `{{ .Release.Name }}` in namespace `{{ .Release.Namespace }}`
{{- end -}}

{{/* Of an object that this release is going to make: who has it now, in words; empty
     where nobody has it, or this release. */}}
{{- define "elasticdl.otherOwner" -}}
{{- if .object -}}
  {{- $owner := include "elasticdl.owner" .object -}}
  {{- if not $owner -}}somebody without Helm
  {{- else if ne $owner (include "elasticdl.self" .root) }}{{ $owner }}{{ end -}}
{{- end -}}
{{- end -}}
