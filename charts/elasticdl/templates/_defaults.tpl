{{/* What a platform says for the jobs of its namespace, and how it meets what a job says.
     `elasticdl.job.values.defaults` of the Python package does the same for `elasticdl validate
     --cluster` and for masters; tests/chart/test_defaults.py compares both. */}}

{{/* The ConfigMap of a platform. No job can be called so that its own has this name. */}}
{{- define "elasticdl.defaultsMap" -}}
elasticdl.defaults
{{- end -}}

{{/* What is at a path, of (dict "tree" MAPPING "path" "a.b"), as YAML of {value}; empty
     where nothing is. */}}
{{- define "elasticdl.at" -}}
{{- $here := .tree -}}
{{- $there := true -}}
{{- range splitList "." .path -}}
  {{- if and $there (kindIs "map" $here) (hasKey $here .) -}}
    {{- $here = get $here . -}}
  {{- else -}}
    {{- $there = false -}}
  {{- end -}}
{{- end -}}
{{- if $there }}{{ toYaml (dict "value" $here) }}{{ end -}}
{{- end -}}

{{/* In a platform: what it says for jobs, as YAML of {defaults, fixed}. What it says of
     itself, and means for its jobs as well, it does not have to repeat. */}}
{{- define "elasticdl.saidForJobs" -}}
{{- $known := .Files.Get "files/defaults.yaml" | fromYaml -}}
{{- $own := dict -}}
{{- range $path := list "images.registry" "images.pullSecrets" "openshift" "serviceAccounts.master" "serviceAccounts.job" "priorityClasses.high.name" "priorityClasses.low.name" -}}
  {{- $said := include "elasticdl.at" (dict "tree" $.Values "path" $path) -}}
  {{- if ne $said (include "elasticdl.at" (dict "tree" $known.chart "path" $path)) -}}
    {{- $branch := get ($said | fromYaml) "value" -}}
    {{- range $key := splitList "." $path | reverse }}{{ $branch = dict $key $branch }}{{ end -}}
    {{- $own = include "elasticdl.overlay" (dict "base" $own "over" $branch) | fromYaml -}}
  {{- end -}}
{{- end -}}
{{- range $path := .Values.jobs.fixed -}}
  {{- if not (include "elasticdl.isPath" (dict "known" $known "path" $path)) -}}
    {{- fail (printf "jobs.fixed: got `%s`, expected the path of a key that a job's values have: look it up in the chart's README or in docs/spec.md" $path) -}}
  {{- end -}}
{{- end -}}
{{- $defaults := include "elasticdl.overlay" (dict "base" $own "over" (.Values.jobs.defaults | default dict)) -}}
{{- toYaml (dict "defaults" ($defaults | fromYaml) "fixed" (.Values.jobs.fixed | default list)) -}}
{{- end -}}

{{/* Whether a job's values may have a key at a path; below a mapping that is empty by
     default anything may be. */}}
{{- define "elasticdl.isPath" -}}
{{- $keys := splitList "." (regexReplaceAll "^pods\\.(master|ps|worker)(\\.|$)" .path "pods.common${2}") -}}
{{- $here := merge (dict "job" .known.job) .known.chart -}}
{{- $fits := not (has (first $keys) (list "jobs" "global")) -}}
{{- range $keys -}}
  {{- if kindIs "map" $here -}}
    {{- if hasKey $here . }}{{ $here = get $here . }}{{ else if $here }}{{ $fits = false }}{{ end -}}
  {{- else -}}
    {{- $fits = false -}}
  {{- end -}}
{{- end -}}
{{- if $fits }}true{{ end -}}
{{- end -}}

{{/* A job's values with those of a platform below them, as YAML, of (dict "chart" DEFAULTS
     "platform" MAPPING "job" VALUES "path" ""). A value that is the chart's own is open:
     the platform's takes its place. Anything else is the job's and stays; a key of the
     chart that is not there was taken out by it. Lists of `pods.<role>` and the pull
     secrets are joined, the platform's first, without those that a job names too. An
     empty text, and null, of a platform say nothing. */}}
{{- define "elasticdl.laidOver" -}}
{{- $result := deepCopy .job -}}
{{- $chart := .chart -}}
{{- $job := .job -}}
{{- $above := .path -}}
{{- range $key, $value := .platform -}}
  {{- $path := printf "%s.%s" $above $key -}}
  {{- $open := get $chart $key -}}
  {{- $said := get $job $key -}}
  {{- $unsaid := and (eq (hasKey $job $key) (hasKey $chart $key)) (eq (toJson $said) (toJson $open)) -}}
  {{- if regexMatch "^\\.pods\\.[a-z]+\\.env$" $path -}}
    {{- /* Below all other environment: "elasticdl.env". */}}
  {{- else if or (kindIs "invalid" $value) (and (kindIs "string" $value) (not $value)) -}}
  {{- else if and (kindIs "map" $value) (or $unsaid (kindIs "map" $said)) -}}
    {{- $inner := dict "chart" ($open | default dict) "platform" $value "job" ($said | default dict) "path" $path -}}
    {{- $_ := set $result $key (include "elasticdl.laidOver" $inner | fromYaml) -}}
  {{- else if and (kindIs "slice" $value) (or $unsaid (kindIs "slice" $said)) (regexMatch "^(\\.pods\\.[a-z]+\\.[A-Za-z]+|\\.images\\.pullSecrets)$" $path) -}}
    {{- $own := list -}}
    {{- range $said | default list }}{{ $own = append $own (include "elasticdl.entryName" .) }}{{ end -}}
    {{- $all := list -}}
    {{- range $value -}}
      {{- if not (has (include "elasticdl.entryName" .) $own) }}{{ $all = append $all . }}{{ end -}}
    {{- end -}}
    {{- $_ := set $result $key (concat $all ($said | default list) | default list) -}}
  {{- else if $unsaid -}}
    {{- $_ := set $result $key $value -}}
  {{- end -}}
{{- end -}}
{{- toYaml $result -}}
{{- end -}}

{{/* By what two entries of a list are the same: a place, a name, or all of it. */}}
{{- define "elasticdl.entryName" -}}
{{- if kindIs "map" . -}}
  {{- .mountPath | default .name | default .ip | default (toJson .) -}}
{{- else -}}
  {{- toJson . -}}
{{- end -}}
{{- end -}}

{{/* What the platform of a job's namespace says, as YAML of {defaults, fixed}. A run goes
     on with what it began with, so that no edit of a running job is one of its master's
     pod as well. */}}
{{- define "elasticdl.platformSays" -}}
{{- $says := dict "defaults" (.Values.jobs.defaults | default dict) "fixed" (.Values.jobs.fixed | default list) -}}
{{- with lookup "v1" "ConfigMap" .Release.Namespace (include "elasticdl.defaultsMap" .) -}}
  {{- $says = (get (.data | default dict) "jobs.yaml" | default "{}") | fromYaml -}}
{{- end -}}
{{- if .Release.IsUpgrade -}}
  {{- $map := lookup "v1" "ConfigMap" .Release.Namespace (include "elasticdl.jobName" .) -}}
  {{- with get (get ($map | default dict) "data" | default dict) "platform.yaml" -}}
    {{- $began := fromYaml . -}}
    {{- if eq (int $began.run) (int $.Values.run) }}{{ $says = omit $began "run" }}{{ end -}}
  {{- end -}}
{{- end -}}
{{- toYaml $says -}}
{{- end -}}

{{/* Lays a job's values over those of its platform, once: all templates share them. */}}
{{- define "elasticdl.takeDefaults" -}}
{{- if not (hasKey .Values "platformSays") -}}
  {{- $known := .Files.Get "files/defaults.yaml" | fromYaml -}}
  {{- $says := include "elasticdl.platformSays" . | fromYaml -}}
  {{- $defaults := $says.defaults | default dict -}}
  {{- $given := dict -}}
  {{- $under := dict -}}
  {{- range $key, $open := $known.chart -}}
    {{- $value := get $.Values $key -}}
    {{- if and (has $key $known.fromPlatform) (ne (toJson $value) (toJson $open)) }}{{ $_ := set $given $key $value }}{{ end -}}
    {{- if hasKey $defaults $key }}{{ $_ := set $under $key $value }}{{ end -}}
  {{- end -}}
  {{- $laid := include "elasticdl.laidOver" (dict "chart" $known.chart "platform" $defaults "job" $under "path" "") | fromYaml -}}
  {{- if $says.fixed }}{{ include "elasticdl.checkFixed" (dict "root" . "known" $known "says" $says "laid" $laid) }}{{ end -}}
  {{- range $key, $value := $laid }}{{ $_ := set $.Values $key $value }}{{ end -}}
  {{- $_ := set .Values "platformSays" $says -}}
  {{- $_ := set .Values "jobSays" $given -}}
{{- end -}}
{{- end -}}

{{/* Refuses what a job says of paths that its platform keeps to itself: there the values
     have to be those of a job that says nothing. */}}
{{- define "elasticdl.checkFixed" -}}
{{- $chart := deepCopy .known.chart -}}
{{- $base := include "elasticdl.laidOver" (dict "chart" $chart "platform" .says.defaults "job" $chart "path" "") | fromYaml -}}
{{- $_ := set $base "job" .known.job -}}
{{- $job := include "elasticdl.job" .root | fromYaml -}}
{{- $now := merge (dict "job" $job) .laid (omit .root.Values "job") -}}
{{- $owner := printf "the platform of namespace `%s` fixes it for its jobs: take it out, or ask who installs that platform (`jobs.fixed` in its values)" .root.Release.Namespace -}}
{{- range $path := .says.fixed -}}
  {{- $paths := list $path -}}
  {{- if regexMatch "^pods\\.common(\\.|$)" $path -}}
    {{- range $role := list "master" "ps" "worker" -}}
      {{- $paths = append $paths (regexReplaceAll "^pods\\.common" $path (printf "pods.%s" $role)) -}}
    {{- end -}}
  {{- end -}}
  {{- /* What is said of all roles is said of each one. */}}
  {{- if regexMatch "^pods\\.(master|ps|worker)(\\.|$)" $path -}}
    {{- $paths = append $paths (regexReplaceAll "^pods\\.(master|ps|worker)" $path "pods.common") -}}
  {{- end -}}
  {{- range $paths -}}
    {{- $expected := include "elasticdl.atOrNothing" (dict "tree" $base "path" .) -}}
    {{- $got := include "elasticdl.atOrNothing" (dict "tree" $now "path" .) -}}
    {{- if ne $got $expected -}}
      {{- fail (printf "%s: got %s, expected %s; %s" . $got $expected $owner) -}}
    {{- end -}}
  {{- end -}}
  {{- if and (has $path (list "images" "images.registry")) $base.images.registry -}}
    {{- $start := printf "%s/" (trimSuffix "/" $base.images.registry) -}}
    {{- $images := dict "job.image" $job.image "job.master.image" $job.master.image "job.ps.image" $job.ps.image "job.worker.image" $job.worker.image -}}
    {{- $platforms := include "elasticdl.imagesBeside" $base | fromYaml -}}
    {{- range $place, $image := include "elasticdl.imagesBeside" $now | fromYaml -}}
      {{- if ne $image (get $platforms $place) }}{{ $_ := set $images $place $image }}{{ end -}}
    {{- end -}}
    {{- range $place, $image := $images -}}
      {{- if and $image (not (hasPrefix $start $image)) -}}
        {{- fail (printf "%s: got %q, expected an image of %q; %s" $place $image (trimSuffix "/" $start) $owner) -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{/* Images of the containers beside a role's own, as YAML of {PLACE: IMAGE}. */}}
{{- define "elasticdl.imagesBeside" -}}
{{- $pods := .pods -}}
{{- $images := dict -}}
{{- range $place := list "common" "master" "ps" "worker" -}}
  {{- range $kind := list "initContainers" "sidecars" -}}
    {{- range get (get $pods $place | default dict) $kind | default list -}}
      {{- $_ := set $images (printf "pods.%s.%s.%s" $place $kind .name) (.image | default "") -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- with dig "tensorboard" "image" "" (.monitoring | default dict) -}}
  {{- $_ := set $images "monitoring.tensorboard.image" . -}}
{{- end -}}
{{- toYaml $images -}}
{{- end -}}

{{/* As "elasticdl.at", as JSON; what is empty is `nothing`, but null is what takes away. */}}
{{- define "elasticdl.atOrNothing" -}}
{{- $found := include "elasticdl.at" . -}}
{{- $value := get ($found | fromYaml) "value" -}}
{{- if not $found }}nothing
{{- else if kindIs "invalid" $value }}null
{{- else if and (empty $value) (not (kindIs "bool" $value)) (not (kindIs "float64" $value)) }}nothing
{{- else }}{{ toJson $value }}{{ end -}}
{{- end -}}
