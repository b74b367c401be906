{{/* Image of every process. */}}
{{- define "headrace.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{/* Labels of the objects of a role: (dict "root" $ "role" "indexer"). */}}
{{- define "headrace.labels" -}}
app.kubernetes.io/name: headrace
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .role }}
{{- end }}

{{/* Variables that all processes share: the user of a role in Redis and Postgres, and settings. */}}
{{- define "headrace.environment" -}}
{{- $values := .root.Values -}}
- name: HEADRACE_{{ upper .user }}_PASSWORD
  valueFrom:
    secretKeyRef: { name: {{ $values.passwords }}, key: HEADRACE_{{ upper .user }}_PASSWORD }
- name: REDIS_USER
  value: {{ printf "%s_%s" $values.prefix .user }}
- name: HEADRACE_REDIS_URL
  value: {{ include "headrace.redisUrl" (dict "root" .root "user" "$(REDIS_USER)" "password" (printf "$(HEADRACE_%s_PASSWORD)" (upper .user))) }}
{{- $postgres := dict "root" .root "user" (printf "headrace_%s" .user) "password" (printf "$(HEADRACE_%s_PASSWORD)" (upper .user)) }}
- name: HEADRACE_DATABASE_URL
  value: {{ include "headrace.postgresUrl" $postgres }}
{{- with $values.postgres.replica }}
- name: HEADRACE_READ_DATABASE_URL
  value: {{ include "headrace.postgresUrl" (merge (dict "host" .) $postgres) }}
{{- end }}
{{ include "headrace.settings" .root }}
{{- end }}

{{/* Variables without a password. */}}
{{- define "headrace.settings" -}}
- name: HEADRACE_STREAM_PREFIX
  value: {{ quote .Values.prefix }}
- name: HEADRACE_PARTITIONS
  value: {{ quote .Values.partitions }}
- name: HEADRACE_ARCHIVE_URL
  value: {{ quote .Values.archive }}
{{- range $name, $value := .Values.settings }}
- name: {{ $name }}
  value: {{ quote $value }}
{{- end }}
{{- end }}

{{- define "headrace.redisUrl" -}}
{{- $redis := .root.Values.redis -}}
{{ printf "%s://%s:%s@%s:%v/%v" (ternary "rediss" "redis" $redis.tls) .user .password $redis.host $redis.port $redis.database }}
{{- end }}

{{- define "headrace.postgresUrl" -}}
{{- $postgres := .root.Values.postgres -}}
{{ printf "postgresql://%s:%s@%s:%v/%s" .user .password (.host | default $postgres.host) $postgres.port $postgres.database }}{{ with $postgres.options }}?{{ . }}{{ end }}
{{- end }}

{{/* Rights of every pod. The image's user has the id 1000. */}}
{{- define "headrace.podSecurity" -}}
securityContext:
  runAsNonRoot: true
  runAsUser: 1000
  seccompProfile: { type: RuntimeDefault }
{{- end }}

{{- define "headrace.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  capabilities: { drop: [ALL] }
{{- end }}
