{{- define "tidegate.labels" -}}
{{ include "tidegate.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "tidegate.selectorLabels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "tidegate.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name }}{{ else }}{{ .Release.Name }}-{{ .Chart.Name }}{{ end }}
{{- end }}

{{- define "tidegate.check" -}}
{{- if and .Values.persistence.enabled (gt (int .Values.replicas) 1) }}
{{- fail "persistence.enabled takes replicas: 1, since one process may use a data directory; for more replicas set counters.url and leave persistence off" }}
{{- end }}
{{- if and .Values.autoscaling.enabled (not .Values.counters.url) }}
{{- fail "autoscaling.enabled takes counters.url: replicas with counters of their own admit a multiple of each limit" }}
{{- end }}
{{- if and .Values.autoscaling.enabled .Values.persistence.enabled }}
{{- fail "autoscaling.enabled takes persistence.enabled=false, since one process may use a data directory" }}
{{- end }}
{{- if and .Values.control.console (not .Values.control.reach) }}
{{- fail "control.console takes control.reach: loopback (kubectl port-forward) or any" }}
{{- end }}
{{- if and .Values.control.reach (not .Values.tokens.secretName) (not .Values.tls.grpc.clientCa) }}
{{- fail "control.reach takes tokens.secretName or tls.grpc.clientCa: without them no caller has a role" }}
{{- end }}
{{- if and .Values.counters.url .Values.networkPolicy.enabled (not .Values.networkPolicy.egress) }}
{{- fail "counters.url needs a way to the store: add it to networkPolicy.egress, or set networkPolicy.enabled=false" }}
{{- end }}
{{- if and .Values.tls.grpc.clientCa (not .Values.tls.grpc.secretName) }}
{{- fail "tls.grpc.clientCa needs tls.grpc.secretName" }}
{{- end }}
{{- if and .Values.tls.grpc.allowSan (not .Values.tls.grpc.clientCa) }}
{{- fail "tls.grpc.allowSan needs tls.grpc.clientCa=true" }}
{{- end }}
{{- end }}

{{- define "tidegate.env" -}}
- { name: TIDEGATE_RULES, value: /etc/tidegate/rules }
- { name: TIDEGATE_LISTEN, value: "0.0.0.0:8081" }
- { name: TIDEGATE_HTTP_LISTEN, value: "0.0.0.0:8082" }
- { name: TIDEGATE_DATA, value: /var/lib/tidegate }
- { name: TIDEGATE_LOG_FORMAT, value: json }
- { name: TIDEGATE_DRAIN_DELAY, value: 5s }
{{- with .Values.tls.grpc }}
{{- if .secretName }}
- { name: TIDEGATE_TLS_CERT, value: /etc/tidegate/tls-grpc/tls.crt }
- { name: TIDEGATE_TLS_KEY, value: /etc/tidegate/tls-grpc/tls.key }
{{- if .clientCa }}
- { name: TIDEGATE_TLS_CLIENT_CA, value: /etc/tidegate/tls-grpc/ca.crt }
{{- end }}
{{- with .allowSan }}
- { name: TIDEGATE_TLS_ALLOW_SAN, value: {{ join "," . | quote }} }
{{- end }}
{{- end }}
{{- end }}
{{- if .Values.tls.http.secretName }}
- { name: TIDEGATE_HTTP_TLS_CERT, value: /etc/tidegate/tls-http/tls.crt }
- { name: TIDEGATE_HTTP_TLS_KEY, value: /etc/tidegate/tls-http/tls.key }
{{- end }}
{{- with .Values.tokens }}
{{- if .secretName }}
- { name: TIDEGATE_HTTP_TOKEN_FILE, value: {{ printf "/etc/tidegate/tokens/%s" .key | quote }} }
{{- end }}
{{- end }}
{{- with .Values.control }}
{{- if .reach }}
- { name: TIDEGATE_CONTROL, value: {{ .reach }} }
{{- end }}
{{- if .console }}
- { name: TIDEGATE_CONSOLE, value: "true" }
{{- end }}
{{- end }}
{{- with .Values.counters }}
{{- if .url }}
- { name: TIDEGATE_COUNTERS, value: {{ .url | quote }} }
{{- with .password }}
{{- if .secretName }}
- { name: TIDEGATE_COUNTERS_PASSWORD_FILE, value: {{ printf "/etc/tidegate/store-password/%s" .key | quote }} }
{{- end }}
{{- end }}
{{- with .ca }}
{{- if .secretName }}
- { name: TIDEGATE_COUNTERS_CA, value: {{ printf "/etc/tidegate/store-ca/%s" .key | quote }} }
{{- end }}
{{- end }}
{{- if .certificate.secretName }}
- { name: TIDEGATE_COUNTERS_CERT, value: /etc/tidegate/store-certificate/tls.crt }
- { name: TIDEGATE_COUNTERS_KEY, value: /etc/tidegate/store-certificate/tls.key }
{{- end }}
{{- end }}
{{- end }}
{{- range $name, $value := .Values.env }}
- { name: {{ $name }}, value: {{ $value | quote }} }
{{- end }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* The Secrets that are mounted, as a map from the name of the volume to that of the Secret. */}}
{{- define "tidegate.secrets" -}}
{{- with .Values.tls.grpc.secretName }}
tls-grpc: {{ . }}
{{- end }}
{{- with .Values.tls.http.secretName }}
tls-http: {{ . }}
{{- end }}
{{- with .Values.tokens.secretName }}
tokens: {{ . }}
{{- end }}
{{- if .Values.counters.url }}
{{- with .Values.counters.password.secretName }}
store-password: {{ . }}
{{- end }}
{{- with .Values.counters.ca.secretName }}
store-ca: {{ . }}
{{- end }}
{{- with .Values.counters.certificate.secretName }}
store-certificate: {{ . }}
{{- end }}
{{- end }}
{{- end }}
