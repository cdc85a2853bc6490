{{/* A job's folder in a text of JSON, and a `.elasticdl` of whatever follows. */}}
{{- define "elasticdl.jobFolder" -}}
[^-_a-zA-Z0-9]\.elasticdl/jobs/[a-z0-9][-a-z0-9]*/[a-z0-9][-a-z0-9]*(~[0-9]+)?[^-_.~a-zA-Z0-9*?$\[{]
{{- end -}}

{{/* The folders of jobs that a text of JSON names, as YAML: `.elasticdl/jobs/ml/digits`. */}}
{{- define "elasticdl.namedFolders" -}}
{{- $found := list -}}
{{- range regexFindAll (include "elasticdl.jobFolder" .) . -1 }}
  {{- $found = append $found (regexReplaceAll "^.(.+).$" . "${1}") }}
{{- end -}}
{{- toYaml $found -}}
{{- end -}}

{{/* The folder of its volume that a mount has, in one spelling; empty for all of it. */}}
{{- define "elasticdl.inside" -}}
{{- $inside := clean (.subPath | default "") -}}
{{- ne $inside "." | ternary $inside "" -}}
{{- end -}}

{{/* The mounts with an empty folder over those of all jobs, wherever the claim is mounted,
     and in it the job's own one and those of other jobs that its values name: to read, or
     to write where the job writes. All stay as they are where a value means the folders of
     several jobs at once. The empty one is over `.elasticdl` itself: what is mounted on
     cannot be renamed, and with a folder around it the others' would come to light. */}}
{{- define "elasticdl.hidden" -}}
{{- $root := trimSuffix "/" .root.Values.state.mountPath -}}
{{- $own := trimPrefix (printf "%s/" $root) (include "elasticdl.jobDir" .) -}}
{{- $said := toJson (list .job .pods (include "elasticdl.platformEnv" . | fromYaml)) -}}
{{- $named := include "elasticdl.namedFolders" $said | fromYamlArray -}}
{{- $written := include "elasticdl.namedFolders" (toJson (list .job.export.dir .job.predictionOutput .job.checkpoint.dir .job.log.file)) | fromYamlArray -}}
{{- $all := regexFindAll "[^-_a-zA-Z0-9]\\.elasticdl[^-_a-zA-Z0-9.]" $said -1 -}}
{{- $around := regexMatch "\\.elasticdl/[^\"\\\\ ]*(//|/\\./|/\\.\\./)" $said -}}
{{- $claim := dict -}}
{{- $taken := list -}}
{{- range .mounts -}}
  {{- $taken = append $taken (trimSuffix "/" .mountPath) -}}
  {{- if eq (trimSuffix "/" .mountPath) $root }}{{ $claim = . }}{{ end -}}
{{- end -}}
{{- /* The claim may be a volume of another name as well. */ -}}
{{- $names := list $claim.name -}}
{{- $source := dict -}}
{{- range .volumes }}{{ if eq .name $claim.name }}{{ $source = . }}{{ end }}{{ end -}}
{{- with dig "persistentVolumeClaim" "claimName" "" $source -}}
  {{- range $.volumes -}}
    {{- if eq (dig "persistentVolumeClaim" "claimName" "" .) (dig "persistentVolumeClaim" "claimName" "" $source) }}{{ $names = append $names .name }}{{ end -}}
  {{- end -}}
{{- end -}}
{{- $above := include "elasticdl.inside" $claim -}}
{{- $mounts := .mounts -}}
{{- if and (eq (len $named) (len $all)) (not $around) -}}
  {{- range .mounts -}}
    {{- $inside := include "elasticdl.inside" . -}}
    {{- $here := or (eq $inside $above) (not $inside) (hasPrefix (printf "%s/" $inside) $above) -}}
    {{- if and (has .name $names) $here (not .subPathExpr) -}}
      {{- $rest := trimPrefix "/" (trimPrefix $inside $above) -}}
      {{- $place := trimSuffix "/" (printf "%s/%s" (trimSuffix "/" .mountPath) $rest) -}}
      {{- /* Where the folders of jobs are a volume of their own, all of it is theirs. */ -}}
      {{- $apart := false -}}
      {{- range list ".elasticdl" ".elasticdl/jobs" (dir $own) -}}
        {{- if has (printf "%s/%s" $place .) $taken }}{{ $apart = true }}{{ end -}}
      {{- end -}}
      {{- $volume := .name -}}
      {{- if not $apart -}}
        {{- /* The same for each folder between: it would take what is hidden along. */}}
        {{- $top := . -}}
        {{- $between := "" -}}
        {{- range compact (splitList "/" $rest) -}}
          {{- $between = printf "%s/%s" $between . -}}
          {{- $path := printf "%s%s" (trimSuffix "/" $top.mountPath) $between -}}
          {{- if not (has $path $taken) -}}
            {{- $mount := dict "name" $volume "mountPath" $path "subPath" (printf "%s%s" $inside $between | trimPrefix "/") -}}
            {{- if $top.readOnly }}{{ $_ := set $mount "readOnly" true }}{{ end -}}
            {{- $mounts = append $mounts $mount -}}
          {{- end -}}
        {{- end -}}
        {{- $mounts = append $mounts (dict "name" "elasticdl-hidden" "mountPath" (printf "%s/.elasticdl" $place)) -}}
      {{- end -}}
      {{- range $folder := $apart | ternary list (prepend $named $own | uniq) -}}
        {{- $path := printf "%s/%s" $place $folder -}}
        {{- if not (has $path $taken) -}}
          {{- $mount := dict "name" $volume "mountPath" $path "subPath" (trimPrefix "/" (printf "%s/%s" $above $folder)) -}}
          {{- if not (has $folder (prepend $written $own)) }}{{ $_ := set $mount "readOnly" true }}{{ end -}}
          {{- $mounts = append $mounts $mount -}}
        {{- end -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- toYaml $mounts -}}
{{- end -}}
