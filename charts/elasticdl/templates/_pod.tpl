{{/* Pods of all roles. Each template takes (dict "root" $ "job" JOB "role" ROLE), where
     JOB has the defaults in it. */}}

{{/* What `pods` says for a role: lists of `common` and of the role one after the other,
     mappings and texts of the role over those of `common`. A key with null in a role
     takes away what `common` says. */}}
{{- define "elasticdl.podValues" -}}
{{- $common := .root.Values.pods.common | default dict -}}
{{- $own := get .root.Values.pods .role | default dict -}}
{{- $result := deepCopy $common -}}
{{- range $key, $value := $own -}}
  {{- if and (kindIs "slice" $value) (hasKey $common $key) -}}
    {{- $_ := set $result $key (concat (get $common $key | default list) $value) -}}
  {{- else if and (kindIs "map" $value) (kindIs "map" (get $common $key)) -}}
    {{- $over := dict "base" (deepCopy (get $common $key)) "over" $value "drop" true -}}
    {{- $_ := set $result $key (include "elasticdl.overlay" $over | fromYaml) -}}
  {{- else if kindIs "invalid" $value -}}
    {{- $_ := unset $result $key -}}
  {{- else -}}
    {{- $_ := set $result $key $value -}}
  {{- end -}}
{{- end -}}
{{- with get $result "securityContext" -}}
  {{- $context := include "elasticdl.securityContext" (dict "root" $.root "context" .) -}}
  {{- $_ := set $result "securityContext" ($context | fromYaml) -}}
{{- end -}}
{{- toYaml $result -}}
{{- end -}}

{{- define "elasticdl.image" -}}
{{- include "elasticdl.imageOrStock" (dict "root" .root "role" .role "own" ((get .job .role).image | default .job.image)) -}}
{{- end -}}

{{/* Labels and annotations of a pod. */}}
{{- define "elasticdl.podMetadata" -}}
{{- $pods := include "elasticdl.podValues" . | fromYaml -}}
{{- $own := include "elasticdl.identity" .root | fromYaml -}}
{{- $_ := set $own "app.kubernetes.io/component" .role -}}
{{- $_ := set $own "app.kubernetes.io/managed-by" "elasticdl-master" -}}
{{- if eq .role "master" -}}
  {{- $_ := set $own "app.kubernetes.io/managed-by" .root.Release.Service -}}
  {{- $_ := set $own "elasticdl-job-name" .job.name -}}
  {{- $_ := set $own "elasticdl-replica-type" .role -}}
  {{- $_ := set $own "elasticdl-replica-index" "0" -}}
{{- else -}}
  {{- /* The master's pod waits with its Job: Kueue wants the label on one of them. */}}
  {{- with .job.queue }}{{ $_ := set $own "kueue.x-k8s.io/queue-name" . }}{{ end -}}
{{- end -}}
{{- /* By this the platform's PodMonitor leaves it out. */}}
{{- with include "elasticdl.metricsScheme" .root }}{{ $_ := set $own "elasticdl.org/metrics" . }}{{ end -}}
labels:
  {{- merge $own ($pods.labels | default dict) .root.Values.commonLabels | toYaml | nindent 2 }}
{{- /* By default a cluster-autoscaler keeps each node with an emptyDir, or with a pod
       whose owner it does not know: all of ours. Every role may be moved at any time. */}}
{{- $annotations := merge (dict) ($pods.annotations | default dict) (dict "cluster-autoscaler.kubernetes.io/safe-to-evict" "true") }}
{{- if .root.Values.monitoring.scrapeAnnotations }}
  {{- $scrape := dict "prometheus.io/scrape" "true" "prometheus.io/port" "8080" "prometheus.io/path" "/metrics" }}
  {{- with include "elasticdl.metricsScheme" .root }}{{ $_ := set $scrape "prometheus.io/scheme" . }}{{ end }}
  {{- $annotations = merge $annotations $scrape }}
{{- end }}
{{- with $annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Requests and limits. A limit that is not given is the request; but at least one CPU
     for the master, which needs little except while it starts. */}}
{{- define "elasticdl.resources" -}}
{{- $asked := (get .job .role).resources -}}
{{- $limits := (get .job .role).limits | default dict -}}
{{- $cpu := $limits.cpu | default (eq .role "master" | ternary (maxf $asked.cpu 1) $asked.cpu) -}}
requests:
  cpu: {{ $asked.cpu | toString | quote }}
  memory: {{ $asked.memory | quote }}
  {{- range $name, $amount := $asked.extra }}
  {{ $name | quote }}: {{ $amount | quote }}
  {{- end }}
limits:
  cpu: {{ $cpu | toString | quote }}
  memory: {{ $limits.memory | default $asked.memory | quote }}
  {{- range $name, $amount := merge (dict) ($limits.extra | default dict) ($asked.extra | default dict) }}
  {{ $name | quote }}: {{ $amount | quote }}
  {{- end }}
{{- with (include "elasticdl.podValues" . | fromYaml).resourceClaims }}
claims:
  {{- range . }}
  - name: {{ .name | quote }}
  {{- end }}
{{- end }}
{{- end -}}

{{/* Environment of proxies and CA bundle, as YAML of {env}. */}}
{{- define "elasticdl.siteEnv" -}}
{{- $env := list -}}
{{- $proxy := .Values.proxy -}}
{{- $names := dict "HTTP_PROXY" $proxy.http "HTTPS_PROXY" $proxy.https -}}
{{- if or $proxy.http $proxy.https -}}
  {{- $none := list "localhost" "127.0.0.1" "::1" ".svc" ".cluster.local" "$(KUBERNETES_SERVICE_HOST)" -}}
  {{- $_ := set $names "NO_PROXY" (concat $none ($proxy.none | default list) | uniq | join ",") -}}
{{- end -}}
{{- range $name, $value := $names -}}
  {{- if $value -}}
    {{- $env = append $env (dict "name" $name "value" $value) -}}
    {{- $env = append $env (dict "name" (lower $name) "value" $value) -}}
  {{- end -}}
{{- end -}}
{{- if .Values.caBundle.configMap -}}
  {{- range list "AWS_CA_BUNDLE" "CURL_CA_BUNDLE" "GIT_SSL_CAINFO" "REQUESTS_CA_BUNDLE" "SSL_CERT_FILE" -}}
    {{- $env = append $env (dict "name" . "value" "/etc/elasticdl-ca/ca.crt") -}}
  {{- end -}}
{{- end -}}
{{- toYaml (dict "env" $env) -}}
{{- end -}}

{{/* Environment that the platform says for a role, as YAML of {env}. */}}
{{- define "elasticdl.platformEnv" -}}
{{- $pods := (.root.Values.platformSays.defaults | default dict).pods | default dict -}}
{{- $env := list -}}
{{- range $place := list "common" .role -}}
  {{- $env = concat $env (get (get $pods $place | default dict) "env" | default list) -}}
{{- end -}}
{{- toYaml (dict "env" $env) -}}
{{- end -}}

{{/* Environment: the site's, the platform's, the user's, then what the roles are told; of
     two of one name the later one stays, since server-side apply refuses both. */}}
{{- define "elasticdl.env" -}}
{{- $pods := include "elasticdl.podValues" . | fromYaml -}}
{{- $name := include "elasticdl.jobName" .root -}}
{{- $namespace := .root.Release.Namespace -}}
{{- /* gRPC would print a line for each stranger that knocks. */ -}}
{{- $all := list (dict "name" "HOME" "value" "/tmp") (dict "name" "GRPC_VERBOSITY" "value" "ERROR") -}}
{{- $all = concat $all ((include "elasticdl.siteEnv" .root | fromYaml).env | default list) ((include "elasticdl.platformEnv" . | fromYaml).env | default list) -}}
{{- /* What is imported from there a worker could write: no code for who has a token. */}}
{{- $ofAll := eq .role "worker" | ternary .job.env (omit (.job.env | default dict) "PYTHONPATH") -}}
{{- range $env := list $ofAll (get .job .role).env -}}
  {{- range $key, $value := $env -}}
    {{- $all = append $all (dict "name" $key "value" $value) -}}
  {{- end -}}
{{- end -}}
{{- $all = concat $all ($pods.env | default list) -}}
{{- $told := dict
      "ELASTICDL_JOB_DIR" (include "elasticdl.jobDir" .)
      "ELASTICDL_MASTER_ADDRESS" (printf "%s-master.%s.svc:%s" $name $namespace (include "elasticdl.masterPort" .job))
      "ELASTICDL_HOST" "::"
      "ELASTICDL_METRICS_PORT" "8080" -}}
{{- if eq .role "master" -}}
  {{- $_ := set $told "ELASTICDL_PLATFORM" "kubernetes" -}}
  {{- $_ := set $told "ELASTICDL_NAMESPACE" $namespace -}}
  {{- $_ := set $told "ELASTICDL_CHART_VERSION" .root.Chart.AppVersion -}}
  {{- $_ := set $told "ELASTICDL_CONFIG_MAP" $name -}}
  {{- $_ := set $told "ELASTICDL_PRIORITY_HIGH" .root.Values.priorityClasses.high.name -}}
  {{- $_ := set $told "ELASTICDL_PRIORITY_LOW" .root.Values.priorityClasses.low.name -}}
  {{- $_ := set $told "ELASTICDL_PORT" (include "elasticdl.masterPort" .job) -}}
  {{- if gt (int .root.Values.run) 1 }}{{ $_ := set $told "ELASTICDL_RUN" (.root.Values.run | int | toString) }}{{ end -}}
{{- else if eq .role "ps" -}}
  {{- $_ := set $told "ELASTICDL_PORT" "50002" -}}
{{- else if eq .job.strategy "allReduce" -}}
  {{- $_ := set $told "ELASTICDL_PORT" "50003" -}}
{{- end -}}
{{- range $key, $value := $told -}}
  {{- $all = append $all (dict "name" $key "value" $value) -}}
{{- end -}}
{{- $all = append $all (dict "name" "ELASTICDL_POD_IP" "valueFrom" (dict "fieldRef" (dict "fieldPath" "status.podIP"))) -}}
{{- $token := dict "name" (include "elasticdl.tokenSecret" .root) "key" "token" -}}
{{- $all = append $all (dict "name" "ELASTICDL_TOKEN" "valueFrom" (dict "secretKeyRef" $token)) -}}
{{- if include "elasticdl.metricsScheme" .root -}}
  {{- $readers := dict "name" (include "elasticdl.tokenSecret" .root) "key" "metrics" -}}
  {{- $all = append $all (dict "name" "ELASTICDL_METRICS_TOKEN" "valueFrom" (dict "secretKeyRef" $readers)) -}}
{{- end -}}
{{- $authority := include "elasticdl.authoritySecret" .root -}}
{{- if and $authority (ne .role "master") -}}
  {{- /* The authority's certificate alone; what else a replica needs the master gives. */ -}}
  {{- $known := dict "name" $authority "key" "tls.crt" -}}
  {{- $all = append $all (dict "name" "ELASTICDL_AUTHORITY" "valueFrom" (dict "secretKeyRef" $known)) -}}
{{- else if $authority -}}
  {{- $all = append $all (dict "name" "ELASTICDL_AUTHORITY_DIR" "value" "/etc/elasticdl-authority") -}}
  {{- $all = append $all (dict "name" "ELASTICDL_CERTIFICATE_HOURS" "value" (.root.Values.tls.certificateHours | toString)) -}}
{{- end -}}
{{- $last := dict -}}
{{- range $place, $entry := $all }}{{ $_ := set $last $entry.name $place }}{{ end -}}
{{- $kept := list -}}
{{- range $place, $entry := $all -}}
  {{- if eq $place (get $last $entry.name) }}{{ $kept = append $kept $entry }}{{ end -}}
{{- end -}}
{{- toYaml $kept -}}
{{- end -}}

{{- define "elasticdl.jobDir" -}}
{{ trimSuffix "/" .root.Values.state.mountPath }}/.elasticdl/jobs/{{ .root.Release.Namespace }}/{{ .job.name }}
{{- end -}}

{{- define "elasticdl.masterPort" -}}
{{ .master.port | default 50001 | int }}
{{- end -}}

{{/* Volumes and their mounts, as YAML of {volumes, mounts}. One volume per source, since
     some drivers hang on a claim that a pod has twice. A mount of the user takes the
     place of the chart's own on the same path (`--volume` of the state's claim). */}}
{{- define "elasticdl.storage" -}}
{{- $pods := include "elasticdl.podValues" . | fromYaml -}}
{{- $volumes := dict -}}
{{- $mounts := $pods.volumeMounts | default list -}}
{{- range .job.volumes -}}
  {{- $key := .claimName | default (printf "host:%s:%s" .hostPath (.type | default "")) -}}
  {{- if not (hasKey $volumes $key) -}}
    {{- $volume := dict "name" (printf "elasticdl-volume-%d" (len $volumes)) -}}
    {{- if .claimName -}}
      {{- $_ := set $volume "persistentVolumeClaim" (dict "claimName" .claimName) -}}
    {{- else -}}
      {{- $path := dict "path" .hostPath -}}
      {{- if .type }}{{ $_ := set $path "type" .type }}{{ end -}}
      {{- $_ := set $volume "hostPath" $path -}}
    {{- end -}}
    {{- $_ := set $volumes $key $volume -}}
  {{- end -}}
  {{- $mount := dict "name" (get $volumes $key).name "mountPath" .mountPath -}}
  {{- if .subPath }}{{ $_ := set $mount "subPath" .subPath }}{{ end -}}
  {{- $mounts = append $mounts $mount -}}
{{- end -}}
{{- $taken := list -}}
{{- range $mounts }}{{ $taken = append $taken (trimSuffix "/" .mountPath) }}{{ end -}}
{{- $state := .root.Values.state -}}
{{- if not (has (trimSuffix "/" $state.mountPath) $taken) -}}
  {{- if not (hasKey $volumes $state.claimName) -}}
    {{- $claim := dict "claimName" $state.claimName -}}
    {{- $_ := set $volumes $state.claimName (dict "name" "elasticdl-state" "persistentVolumeClaim" $claim) -}}
  {{- end -}}
  {{- $mount := dict "name" (get $volumes $state.claimName).name "mountPath" $state.mountPath -}}
  {{- if $state.subPath }}{{ $_ := set $mount "subPath" $state.subPath }}{{ end -}}
  {{- $mounts = append $mounts $mount -}}
{{- end -}}
{{- /* A PS too: what its workers write into the job's folder says what it loads. */}}
{{- if and (ne .role "master") $state.hideOtherJobs -}}
  {{- $there := concat (values $volumes) ($pods.volumes | default list) -}}
  {{- $mounts = include "elasticdl.hidden" (dict "job" .job "root" .root "role" .role "pods" $pods "mounts" $mounts "volumes" $there) | fromYamlArray -}}
  {{- $hides := false -}}
  {{- range $mounts }}{{ if eq .name "elasticdl-hidden" }}{{ $hides = true }}{{ end }}{{ end -}}
  {{- if $hides -}}
    {{- $_ := set $volumes "hidden" (dict "name" "elasticdl-hidden" "emptyDir" (dict "sizeLimit" "1Mi")) -}}
  {{- end -}}
{{- end -}}
{{- if not (has "/tmp" $taken) -}}
  {{- $_ := set $volumes "tmp" (dict "name" "elasticdl-tmp" "emptyDir" ($pods.tmpSizeLimit | empty | ternary dict (dict "sizeLimit" $pods.tmpSizeLimit))) -}}
  {{- $mounts = append $mounts (dict "name" "elasticdl-tmp" "mountPath" "/tmp") -}}
{{- end -}}
{{- if and (eq .role "worker") (not (has "/dev/shm" $taken)) -}}
  {{- /* The 64 MiB that a container gets otherwise are too few for data loaders. */ -}}
  {{- $_ := set $volumes "shm" (dict "name" "elasticdl-shm" "emptyDir" (dict "medium" "Memory")) -}}
  {{- $mounts = append $mounts (dict "name" "elasticdl-shm" "mountPath" "/dev/shm") -}}
{{- end -}}
{{- with .root.Values.caBundle -}}
  {{- if .configMap -}}
    {{- $items := list (dict "key" .key "path" "ca.crt") -}}
    {{- $_ := set $volumes "ca" (dict "name" "elasticdl-ca" "configMap" (dict "name" .configMap "items" $items)) -}}
    {{- $mounts = append $mounts (dict "name" "elasticdl-ca" "mountPath" "/etc/elasticdl-ca" "readOnly" true) -}}
  {{- end -}}
{{- end -}}
{{- if eq .role "master" -}}
  {{- $name := include "elasticdl.jobName" .root -}}
  {{- $platform := include "elasticdl.defaultsMap" .root -}}
  {{- $_ := set $volumes "platform" (dict "name" "elasticdl-platform" "configMap" (dict "name" $platform "optional" true)) -}}
  {{- $mounts = append $mounts (dict "name" "elasticdl-platform" "mountPath" "/etc/elasticdl-platform" "readOnly" true) -}}
  {{- $_ := set $volumes "spec" (dict "name" "elasticdl-spec" "configMap" (dict "name" $name)) -}}
  {{- $mounts = append $mounts (dict "name" "elasticdl-spec" "mountPath" "/etc/elasticdl" "readOnly" true) -}}
  {{- with include "elasticdl.authoritySecret" .root -}}
    {{- $_ := set $volumes "authority" (dict "name" "elasticdl-authority" "secret" (dict "secretName" .)) -}}
    {{- $mounts = append $mounts (dict "name" "elasticdl-authority" "mountPath" "/etc/elasticdl-authority" "readOnly" true) -}}
  {{- end -}}
{{- end -}}
{{- $sorted := $pods.volumes | default list -}}
{{- range $key := keys $volumes | sortAlpha }}{{ $sorted = append $sorted (get $volumes $key) }}{{ end -}}
{{- include "elasticdl.checkStorage" (dict "role" .role "volumes" $sorted "mounts" $mounts "own" ($pods.volumes | default list)) -}}
{{- toYaml (dict "volumes" $sorted "mounts" $mounts) -}}
{{- end -}}

{{- define "elasticdl.probe" -}}
httpGet:
  path: {{ .path }}
  port: metrics
  {{- with include "elasticdl.metricsScheme" .root }}
  scheme: {{ upper . }}
  {{- end }}
{{- end -}}

{{/* The specification of one role's pod; the restricted Pod Security Standard unless
     the values say otherwise. */}}
{{- define "elasticdl.podSpec" -}}
{{- $pods := include "elasticdl.podValues" . | fromYaml -}}
{{- $storage := include "elasticdl.storage" . | fromYaml -}}
{{- /* A share may be written as a number. */}}
{{- $priority := (get .job .role).priority -}}
{{- $priority = kindIs "invalid" $priority | ternary "" ($priority | toString) -}}
restartPolicy: Never
serviceAccountName: {{ eq .role "master" | ternary (include "elasticdl.masterAccount" .root) .root.Values.serviceAccounts.job | quote }}
{{- /* Only the master talks to the API server. */}}
automountServiceAccountToken: {{ eq .role "master" }}
enableServiceLinks: false
{{- if eq .role "master" }}
terminationGracePeriodSeconds: 30
{{- else }}
terminationGracePeriodSeconds: {{ minf (.job.worker.graceSeconds | ceil) 1000000000 | int }}
{{- end }}
{{- /* A share (`0.5`) makes some workers high and the rest low: the master says which. Short
       pods of commands are made of the template as it is, and are low. */}}
{{- if or (kindIs "float64" (get .job .role).priority) (regexMatch "^[0-9.]+$" $priority) }}{{ $priority = "low" }}{{ end }}
{{- if $priority }}
priorityClassName: {{ dig $priority "name" $priority (pick .root.Values.priorityClasses "high" "low") | quote }}
{{- end }}
{{- with .root.Values.images.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . | quote }}
  {{- end }}
{{- end }}
{{- if eq .role "master" }}
{{- $_ := set $pods "tolerations" (include "elasticdl.masterTolerations" $pods | fromYamlArray) }}
{{- end }}
{{- range $key := list "runtimeClassName" "schedulerName" "nodeSelector" "affinity" "tolerations" "topologySpreadConstraints" "securityContext" "hostAliases" "dnsConfig" "resourceClaims" }}
{{- with get $pods $key }}
{{ toYaml (dict $key .) }}
{{- end }}
{{- end }}
{{- if eq ($pods.hostUsers | toString) "false" }}
hostUsers: false
{{- end }}
{{- /* A plain container beside the master would keep its Job from ending. */}}
{{- $before := list }}
{{- range $pods.sidecars }}
  {{- $before = append $before (merge (dict "restartPolicy" "Always") . (dict "securityContext" ($pods.containerSecurityContext | default dict))) }}
{{- end }}
{{- range $pods.initContainers }}
  {{- $before = append $before (merge (dict) . (dict "securityContext" ($pods.containerSecurityContext | default dict))) }}
{{- end }}
{{- include "elasticdl.checkContainers" (dict "role" .role "containers" $before) }}
{{- with $before }}
initContainers:
  {{- toYaml . | nindent 2 }}
{{- end }}
containers:
  - name: main
    image: {{ include "elasticdl.image" . | quote }}
    imagePullPolicy: {{ .job.imagePullPolicy }}
    {{- /* -P: nothing is imported from the working directory, which all jobs can write. */}}
    command: [python, -P, -m, elasticdl.{{ .role }}.main]
    workingDir: {{ .root.Values.state.mountPath | quote }}
    env:
      {{- include "elasticdl.env" . | nindent 6 }}
    {{- with $pods.envFrom }}
    envFrom:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    ports:
      {{- if eq .role "master" }}
      - {name: tcp-grpc, containerPort: {{ include "elasticdl.masterPort" .job }}}
      {{- else if eq .role "ps" }}
      - {name: tcp-grpc, containerPort: 50002}
      {{- else if eq .job.strategy "allReduce" }}
      - {name: tcp-group, containerPort: 50003}
      {{- end }}
      - {name: metrics, containerPort: 8080}
    resources:
      {{- include "elasticdl.resources" . | nindent 6 }}
    {{- with $pods.containerSecurityContext }}
    securityContext:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    {{- with $pods.lifecycle }}
    lifecycle:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    {{- /* Imports, tracing and restoring may take worker.startSeconds. After that a probe
         only finds what hangs as a whole: the master's heartbeats are quicker. */}}
    startupProbe:
      {{- include "elasticdl.probe" (dict "path" "/healthz" "root" .root) | nindent 6 }}
      periodSeconds: 2
      timeoutSeconds: 5
      {{- /* A master that begins may wait for its folder's lock and for storage. */}}
      {{- $seconds := ternary (addf .job.master.journalWaitSeconds 600) .job.worker.startSeconds (eq .role "master") }}
      failureThreshold: {{ minf (divf $seconds 2 | ceil) 1000000000 | int | max 1 }}
    livenessProbe:
      {{- include "elasticdl.probe" (dict "path" "/healthz" "root" .root) | nindent 6 }}
      periodSeconds: 10
      timeoutSeconds: 5
      failureThreshold: 6
    readinessProbe:
      {{- include "elasticdl.probe" (dict "path" "/readyz" "root" .root) | nindent 6 }}
      periodSeconds: 5
      timeoutSeconds: 5
    {{- /* The last lines of a crash reach the container's status, and so the master. */}}
    terminationMessagePolicy: FallbackToLogsOnError
    volumeMounts:
      {{- toYaml $storage.mounts | nindent 6 }}
volumes:
  {{- toYaml $storage.volumes | nindent 2 }}
{{- end -}}

{{/* A whole pod, for the ConfigMap. The master adds name, owner, job, index and what
     differs from pod to pod. */}}
{{- define "elasticdl.pod" -}}
apiVersion: v1
kind: Pod
metadata:
  {{- include "elasticdl.podMetadata" . | nindent 2 }}
spec:
  {{- include "elasticdl.podSpec" . | nindent 2 }}
{{- end -}}
