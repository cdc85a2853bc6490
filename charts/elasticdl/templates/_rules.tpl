{{/* What the specification's own rules refuse (`JobSpec` of the Python package), in the
     same sentences: a master would refuse it too, and its Job has then failed for good.
     tests/chart/test_rules_of_jobs.py compares both. */}}

{{/* A quantity as a number: `512Mi`, `0.5`; of (dict "of" QUANTITY). */}}
{{- define "elasticdl.amount" -}}
{{- $text := .of | toString -}}
{{- $unit := regexFind "[A-Za-z]*$" $text -}}
{{- $sizes := dict "" 1.0 "m" 0.001 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15
      "Ki" 1024.0 "Mi" 1048576.0 "Gi" 1073741824.0 "Ti" 1099511627776.0
      "Pi" 1125899906842624.0 -}}
{{ mulf (trimSuffix $unit $text | float64) (get $sizes $unit | default 0) }}
{{- end -}}

{{/* One sentence, of (list PATH GOT EXPECTED NEXT). */}}
{{- define "elasticdl.problem" -}}
{{ index . 0 }}: got {{ index . 1 }}, expected {{ index . 2 }}; {{ index . 3 }}
{{- end -}}

{{/* Whether Kubernetes counts a resource in whole ones, and lends none beyond the request. */}}
{{- define "elasticdl.isDevice" -}}
{{- if and (contains "/" .) (not (contains "kubernetes.io/" .)) }}true{{ end -}}
{{- end -}}

{{/* Of (dict "role" ROLE "spec" SPEC): what of its resources is no amount of one. */}}
{{- define "elasticdl.resourceProblems" -}}
{{- $role := .role -}}
{{- $memory := .spec.resources.memory -}}
{{- if lt (include "elasticdl.amount" (dict "of" $memory) | float64) 16777216.0 }}
{{ include "elasticdl.problem" (list (printf "job.%s.resources.memory" $role) $memory "at least 16Mi" "write it as `4Gi`") }}
{{- end -}}
{{- range $part, $extra := dict "resources" .spec.resources.extra "limits" (.spec.limits | default dict).extra -}}
  {{- range $name, $amount := $extra -}}
    {{- $path := printf "job.%s.%s.extra.%s" $role $part $name -}}
    {{- if has $name (list "cpu" "memory") }}
{{ include "elasticdl.problem" (list $path $amount (printf "it in `%s` beside `extra`" $name) "move it one level up") }}
    {{- end -}}
    {{- if not (regexMatch "/|^(cpu|memory|ephemeral-storage|hugepages-.+)$" $name) }}
{{ include "elasticdl.problem" (list $path "no domain" "one, as in `nvidia.com/gpu`" "write the full name") }}
    {{- end -}}
    {{- if not (regexMatch "^[0-9]+([.][0-9]+)?(m|k|Ki|M|Mi|G|Gi|T|Ti|P|Pi)?$" $amount) }}
{{ include "elasticdl.problem" (list $path (squote $amount) "a quantity" "write it as `1` or `8Gi`") }}
    {{- else if include "elasticdl.isDevice" $name -}}
      {{- $number := include "elasticdl.amount" (dict "of" $amount) | float64 -}}
      {{- if ne (floor $number) $number }}
{{ include "elasticdl.problem" (list $path (squote $amount) "a whole number" "devices are not divided") }}
      {{- end -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{/* Of (dict "role" ROLE "spec" SPEC): what of its limits is below the request. */}}
{{- define "elasticdl.limitProblems" -}}
{{- $asked := .spec.resources -}}
{{- $limits := .spec.limits | default dict -}}
{{- $pairs := list -}}
{{- range $name := list "cpu" "memory" -}}
  {{- with get $limits $name }}{{ $pairs = append $pairs (list $name . (get $asked $name)) }}{{ end -}}
{{- end -}}
{{- range $name, $limit := $limits.extra -}}
  {{- with get ($asked.extra | default dict) $name -}}
    {{- $pairs = append $pairs (list (printf "extra.%s" $name) $limit .) -}}
  {{- end -}}
{{- end -}}
{{- range $pairs -}}
  {{- $name := first . -}}
  {{- $limit := include "elasticdl.amount" (dict "of" (index . 1)) | float64 -}}
  {{- $request := include "elasticdl.amount" (dict "of" (index . 2)) | float64 -}}
  {{- if lt $limit $request }}
{{ include "elasticdl.problem" (list (printf "job.%s.limits.%s" $.role $name) (index . 1 | toString) (printf "at least resources.%s, %s" $name (index . 2 | toString)) (printf "raise it, or lower resources.%s" $name)) }}
  {{- else if and (gt $limit $request) (include "elasticdl.isDevice" $name) }}
{{ include "elasticdl.problem" (list (printf "job.%s.limits.%s" $.role $name) (index . 1 | toString) (printf "as many as resources.%s, %s: no device is lent twice" $name (index . 2 | toString)) "leave it out") }}
  {{- end -}}
{{- end -}}
{{- end -}}

{{/* What a group of workers (strategy allReduce) refuses, one a line, of (list JOB GIVEN):
     the job with the defaults in it, and as it was given. */}}
{{- define "elasticdl.groupProblems" -}}
{{- $job := index . 0 -}}
{{- $replicas := int $job.worker.replicas -}}
{{- $given := index . 1 -}}
{{- if ne $job.strategy "allReduce" }}
{{- if $job.training.globalBatchSize }}
{{ include "elasticdl.problem" (list "job.training.globalBatchSize" (toString $job.training.globalBatchSize) (printf "nothing: with strategy `%s` a step has the `batchSize` records of one worker" $job.strategy) "leave it out, or write strategy: allReduce") }}
{{- end }}
{{- $exchange := list }}
{{- range $key, $value := $given.allReduce }}
  {{- if not (kindIs "invalid" $value) }}{{ $exchange = append $exchange $key }}{{ end }}
{{- end }}
{{- with $exchange }}
{{ include "elasticdl.problem" (list "job.allReduce" (join ", " .) (printf "nothing: with strategy `%s` workers exchange nothing" $job.strategy) "leave it out, or write strategy: allReduce") }}
{{- end }}
{{- else if eq $job.type "train" }}
{{- $ps := list }}
{{- range $key, $value := $given.ps }}
  {{- if not (kindIs "invalid" $value) }}{{ $ps = append $ps $key }}{{ end }}
{{- end }}
{{- with $ps }}
{{ include "elasticdl.problem" (list "job.ps" (join ", " .) "nothing: with strategy `allReduce` there are no parameter servers" "leave `ps` out, or write strategy: parameterServer") }}
{{- end }}
{{- if ne (int $job.worker.pullSteps) 1 }}
{{ include "elasticdl.problem" (list "job.worker.pullSteps" (int $job.worker.pullSteps | toString) "1: with strategy `allReduce` all workers make each step together" "leave it out, or write strategy: parameterServer") }}
{{- end }}
{{- $set := and (ne (toString $job.training.globalBatchSize) "elastic") (not (empty $job.training.globalBatchSize)) }}
{{- $records := $set | ternary $job.training.globalBatchSize (mul $job.training.batchSize $replicas) | int64 }}
{{- if gt $records 16777216 }}
{{ include "elasticdl.problem" (list (empty $job.training.globalBatchSize | ternary "job.training.batchSize" "job.training.globalBatchSize") (empty $job.training.globalBatchSize | ternary (printf "%d records of all workers in a step" $records) (toString $records)) "at most 16777216: workers that make a step together count no further exactly" "lower it") }}
{{- end }}
{{- if and (ne $job.allReduce.learningRate "none") (ne (toString $job.training.globalBatchSize) "elastic") }}
{{ include "elasticdl.problem" (list "job.allReduce.learningRate" $job.allReduce.learningRate "none: a step has as many records whatever the number of workers is" "leave it out, or write training.globalBatchSize: elastic") }}
{{- end }}
{{- end }}
{{- end -}}

{{/* What would have no effect without PS (strategy local) or in sync mode, one a line, of
     (list JOB GIVEN). */}}
{{- define "elasticdl.strategyProblems" -}}
{{- $job := index . 0 -}}
{{- $given := index . 1 -}}
{{- $pulls := int $job.worker.pullSteps -}}
{{- if and (eq $job.strategy "local") (eq $job.type "train") }}
{{- $ps := list }}
{{- range $key, $value := $given.ps }}
  {{- if not (kindIs "invalid" $value) }}{{ $ps = append $ps $key }}{{ end }}
{{- end }}
{{- with $ps }}
{{ include "elasticdl.problem" (list "job.ps" (join ", " .) "nothing: with strategy `local` there are no parameter servers" "leave `ps` out, or write strategy: parameterServer") }}
{{- end }}
{{- if ne $pulls 1 }}
{{ include "elasticdl.problem" (list "job.worker.pullSteps" (toString $pulls) "1: with strategy `local` nothing is pulled" "leave it out, or write strategy: parameterServer") }}
{{- end }}
{{- end }}
{{- if and (eq $job.strategy "parameterServer") (eq $job.type "train") (eq $job.ps.mode "sync") }}
{{- $reason := "with ps.mode sync each gradient is of the version that it is applied to" }}
{{- $help := "leave it out, or write ps.mode: async" }}
{{- if $job.ps.maxStaleness }}
{{ include "elasticdl.problem" (list "job.ps.maxStaleness" (int $job.ps.maxStaleness | toString) (printf "0: %s" $reason) $help) }}
{{- end }}
{{- if $job.ps.stalenessModulation }}
{{ include "elasticdl.problem" (list "job.ps.stalenessModulation" "true" (printf "false: %s" $reason) $help) }}
{{- end }}
{{- if ne $pulls 1 }}
{{ include "elasticdl.problem" (list "job.worker.pullSteps" (toString $pulls) (printf "1: %s" $reason) $help) }}
{{- end }}
{{- end }}
{{- end -}}

{{/* All problems of a job with the defaults in it, one a line. */}}
{{- define "elasticdl.jobProblems" -}}
{{- $job := . -}}
{{- $definition := $job.model.definition | default "" -}}
{{- if not $definition }}
{{ include "elasticdl.problem" (list "job.model.definition" "nothing" "the model function, as `folder.file.function`" "add it") }}
{{- else if not (regexMatch "^[^.]+[.]." $definition) }}
{{ include "elasticdl.problem" (list "job.model.definition" (squote $definition) "the model function, as `folder.file.function`" "add the function's name behind the file's") }}
{{- end }}
{{- range $name, $_ := $job.model.files }}
  {{- if or (hasPrefix "/" $name) (has ".." (splitList "/" $name)) }}
{{ include "elasticdl.problem" (list "job.model.files" (squote $name) "a file name inside the model's folder" "take `..` and the leading `/` away") }}
  {{- end }}
{{- end }}
{{- if kindIs "map" $job.data.prepare }}
  {{- with dict "dataset" $job.data.prepare.dataset "command" $job.data.prepare.command }}
  {{- if eq (empty .dataset) (empty .command) }}
{{ include "elasticdl.problem" (list "job.data.prepare" (empty .dataset | ternary "neither of them" "both") "exactly one of `dataset` and `command`" "write `dataset: digits`, or a command as a list of words") }}
  {{- end }}
  {{- end }}
{{- end }}
{{- $origin := get (dict "train" "training" "evaluate" "validation" "predict" "prediction") $job.type }}
{{- if not (get $job.data $origin) }}
{{ include "elasticdl.problem" (list (printf "job.data.%s" $origin) "nothing" (printf "the records of this %s job" $job.type) "name a file, a folder or a glob") }}
{{- end }}
{{- if and (ne $job.type "train") (not $job.checkpoint.initFrom) }}
{{ include "elasticdl.problem" (list "job.checkpoint.initFrom" "nothing" (printf "the checkpoint that this %s job loads" $job.type) "name a checkpoint (`.../version-N`) or a folder of them") }}
{{- end }}
{{- $worker := $job.worker }}
{{- $replicas := int $worker.replicas }}
{{- if and (eq $job.strategy "local") (ne $replicas 1) }}
{{ include "elasticdl.problem" (list "job.worker.replicas" (toString $replicas) "1, since strategy `local` runs one worker" "write 1, or strategy: parameterServer") }}
{{- end }}
{{- $least := max 1 (int $worker.min) }}
{{- if and (eq $job.strategy "local") (eq $replicas 1) $worker.elastic (gt (int $worker.max) (int $least)) }}
{{ include "elasticdl.problem" (list "job.worker.max" (int $worker.max | toString) (printf "no range of workers (%d to %d), since strategy `local` runs one worker" $least (int $worker.max)) "leave worker.min and worker.max out, or write strategy: parameterServer") }}
{{- end }}
{{- if and $worker.memoryLimitMax (not (regexMatch "^[0-9]+([.][0-9]+)?(m|k|Ki|M|Mi|G|Gi|T|Ti|P|Pi)?$" $worker.memoryLimitMax)) }}
{{ include "elasticdl.problem" (list "job.worker.memoryLimitMax" (squote $worker.memoryLimitMax) "a quantity" "write it as `8Gi` or `512Mi`") }}
{{- end }}
{{- if and $worker.max (gt $replicas (int $worker.max)) }}
{{ include "elasticdl.problem" (list "job.worker.replicas" (toString $replicas) (printf "at most worker.max, %d" (int $worker.max)) "raise worker.max or lower worker.replicas") }}
{{- end }}
{{- if gt (int $worker.min) $replicas }}
{{ include "elasticdl.problem" (list "job.worker.min" (int $worker.min | toString) (printf "at most worker.replicas, %d" $replicas) "lower worker.min or raise worker.replicas") }}
{{- end }}
{{- if le (float64 $worker.deadSeconds) (float64 $worker.heartbeatSeconds) }}
{{ include "elasticdl.problem" (list "job.worker.deadSeconds" ($worker.deadSeconds | toString) (printf "more than worker.heartbeatSeconds, %v" $worker.heartbeatSeconds) "several times it, or every replica counts as dead") }}
{{- end }}
{{- $priority := $worker.priority | toString }}
{{- if contains "=" $priority }}
{{ include "elasticdl.problem" (list "job.worker.priority" (squote $priority) "a PriorityClass, or a share of `high` workers from 0 to 1" (printf "write `%s` for `%s`" (splitList "=" $priority | last) $priority)) }}
{{- else if and (kindIs "float64" $worker.priority) (gt ($worker.priority | float64) 1.0) }}
{{ include "elasticdl.problem" (list "job.worker.priority" (squote (printf "%v" $worker.priority)) "a PriorityClass, or a share of `high` workers from 0 to 1" "write it as `0.5`") }}
{{- else if and (regexMatch "^[0-9.]+$" $priority) (or (not (regexMatch "^([0-9]+[.]?[0-9]*|[.][0-9]+)$" $priority)) (gt (float64 $priority) 1.0)) }}
{{ include "elasticdl.problem" (list "job.worker.priority" (squote $priority) "a PriorityClass, or a share of `high` workers from 0 to 1" "write it as `0.5`") }}
{{- else if and (kindIs "string" $worker.priority) (not (regexMatch "^[0-9.]*$|^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$" $priority)) }}
{{ include "elasticdl.problem" (list "job.worker.priority" (squote $priority) "a PriorityClass, or a share of `high` workers from 0 to 1" "lower case letters, digits, `-` and `.`, no dash at the ends") }}
{{- end }}
{{- if and (eq $job.ps.mode "async") (gt (int $job.ps.gradsToWait) 1) }}
{{ include "elasticdl.problem" (list "job.ps.gradsToWait" (int $job.ps.gradsToWait | toString) "0 with ps.mode async" "set ps.mode: sync, or leave it out") }}
{{- end }}
{{- if and (eq $job.ps.mode "sync") (eq $job.ps.recovery "continue") }}
{{ include "elasticdl.problem" (list "job.ps.recovery" "continue" "`auto` or `rewind` with ps.mode sync" "all PS have one version there; leave it out, or set ps.mode: async") }}
{{- end }}
{{- if and $job.onEnd.webhook $job.onEnd.webhookFrom }}
{{ include "elasticdl.problem" (list "job.onEnd" "both" "one of `webhook` and `webhookFrom`" "take one of them out") }}
{{- end }}
{{- range $place, $volume := $job.volumes }}
  {{- if eq (empty $volume.claimName) (empty $volume.hostPath) }}
{{ include "elasticdl.problem" (list (printf "job.volumes[%d]" $place) (empty $volume.claimName | ternary "neither of them" "both") "exactly one of `claimName` and `hostPath`" "name where the volume comes from") }}
  {{- end }}
{{- end }}
{{- range $path, $env := dict "job.env" $job.env "job.master.env" $job.master.env "job.ps.env" $job.ps.env "job.worker.env" $job.worker.env }}
  {{- range $name, $_ := $env }}
    {{- if not (regexMatch "^[-._a-zA-Z][-._a-zA-Z0-9]*$" $name) }}
{{ include "elasticdl.problem" (list $path (squote $name) "the name of a variable" "letters, digits and `_`, not a digit first") }}
    {{- end }}
  {{- end }}
{{- end }}
{{- range $place, $volume := $job.volumes }}
  {{- $path := regexReplaceAll "/+$" $volume.mountPath "" }}
  {{- $parts := rest (splitList "/" $path) }}
  {{- if or (has $path (list "" "/bin" "/dev" "/etc" "/lib" "/lib64" "/opt" "/opt/elasticdl" "/proc" "/sbin" "/sys" "/usr")) (has "" $parts) (has "." $parts) (has ".." $parts) (contains ":" $path) }}
{{ include "elasticdl.problem" (list (printf "job.volumes[%d].mountPath" $place) $volume.mountPath "a folder that the container can do without" "the container's own files are there; choose another") }}
  {{- end }}
{{- end }}
{{- range $role := list "master" "ps" "worker" }}
{{- include "elasticdl.resourceProblems" (dict "role" $role "spec" (get $job $role)) }}
{{- include "elasticdl.limitProblems" (dict "role" $role "spec" (get $job $role)) }}
{{- end }}
{{- /* What is so in a cluster alone. */}}
{{- if has (int $job.master.port) (list 8080) }}
{{ include "elasticdl.problem" (list "job.master.port" "8080" "another port than that of its metrics" "take it out: it is 50001 then") }}
{{- end }}
{{- end -}}

{{/* Of the path where the state's volume appears: what is wrong with it. */}}
{{- define "elasticdl.stateProblem" -}}
{{- $path := .Values.state.mountPath -}}
{{- $root := regexReplaceAll "/+$" $path "" | default "/" -}}
{{- $first := printf "/%s" (index (splitList "/" (printf "%s/" $root)) 1) -}}
{{- if or (has $root (list "/" "/opt" "/opt/elasticdl" "/home" "/root" "/run" "/var")) (has $first (list "/bin" "/boot" "/dev" "/etc" "/lib" "/lib64" "/proc" "/sbin" "/sys" "/tmp" "/usr")) (has "." (splitList "/" $root)) (has ".." (splitList "/" $root)) (contains "//" $root) (contains ":" $root) -}}
{{ include "elasticdl.problem" (list "state.mountPath" $path "a folder of its own, as /data" "the container's own files are there; choose another") }}
{{- end -}}
{{- end -}}

{{/* Of (dict "role" ROLE "volumes" LIST "mounts" LIST "own" LIST): what a pod cannot
     have, `own` being the volumes that the user named. */}}
{{- define "elasticdl.checkStorage" -}}
{{- range .own -}}
  {{- if hasPrefix "elasticdl-" .name -}}
    {{- fail (printf "pods.%s.volumes: got the name `%s`, expected one that does not begin with `elasticdl-`, as the chart's own do; choose another" $.role .name) -}}
  {{- end -}}
{{- end -}}
{{- $names := list -}}
{{- range .volumes -}}
  {{- if has .name $names -}}
    {{- fail (printf "pods.%s.volumes: got two of the name `%s`, expected one; rename or take out one of them (those of pods.common count too)" $.role .name) -}}
  {{- end -}}
  {{- $names = append $names .name -}}
{{- end -}}
{{- $paths := list -}}
{{- range .mounts -}}
  {{- $path := trimSuffix "/" .mountPath -}}
  {{- if not (has .name $names) -}}
    {{- fail (printf "pods.%s.volumeMounts: got the volume `%s`, expected one of pods.%s.volumes or pods.common.volumes; add it there" $.role .name $.role) -}}
  {{- end -}}
  {{- if has $path $paths -}}
    {{- fail (printf "pods.%s.volumeMounts, job.volumes: got two volumes on `%s`, expected one; take one of them out" $.role $path) -}}
  {{- end -}}
  {{- $paths = append $paths $path -}}
{{- end -}}
{{- end -}}

{{/* Of (dict "role" ROLE "containers" LIST): names that a pod cannot have. */}}
{{- define "elasticdl.checkContainers" -}}
{{- $role := .role -}}
{{- $names := list "main" -}}
{{- range .containers -}}
  {{- if has .name $names -}}
    {{- fail (printf "pods.%s.sidecars, pods.%s.initContainers: got two containers of the name `%s`, expected one, and `main` is the role itself; rename it" $role $role .name) -}}
  {{- end -}}
  {{- $names = append $names .name -}}
{{- end -}}
{{- end -}}

{{/* Ends the rendering with them, if there are any. */}}
{{- define "elasticdl.checkJob" -}}
{{- $job := include "elasticdl.job" . | fromYaml -}}
{{- with cat (include "elasticdl.jobProblems" $job) (include "elasticdl.groupProblems" (list $job .Values.job)) (include "elasticdl.strategyProblems" (list $job .Values.job)) | trim }}{{ fail . }}{{ end -}}
{{- with include "elasticdl.stateProblem" . }}{{ fail . }}{{ end -}}
{{- end -}}
