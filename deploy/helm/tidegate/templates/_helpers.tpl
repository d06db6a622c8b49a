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
{{- with .Values.service }}
{{- if and (eq (toString .clusterIP) "None") (or (ne (int .grpcPort) 8081) (ne (int .httpPort) 8082)) }}
{{- fail "service.grpcPort and service.httpPort take a service.clusterIP, such as \"\": a headless Service (None) maps no ports, and pods listen on 8081 and 8082" }}
{{- end }}
{{- end }}
{{- range .Values.extraEnv }}
{{- if hasKey $.Values.env .name }}
{{- fail (printf "%s is in env and in extraEnv; remove one of them" .name) }}
{{- end }}
{{- end }}
{{- end }}

{{- /* The time until no Envoy calls a pod that another pod replaces: STRICT_DNS without health checks resolves the name every 5 s, and the
cluster's DNS may keep an answer for 30 s. With a volume the next pod begins when this pod has ended, and a delay would only lengthen the time without a server. */}}
{{- define "tidegate.drainDelay" -}}
{{- ternary "0s" "40s" .Values.persistence.enabled }}
{{- end }}

{{- /* The variables that the chart sets, as a map from name to value. */}}
{{- define "tidegate.variables" -}}
TIDEGATE_RULES: /etc/tidegate/rules
TIDEGATE_LISTEN: "0.0.0.0:8081"
TIDEGATE_HTTP_LISTEN: "0.0.0.0:8082"
TIDEGATE_DATA: /var/lib/tidegate
TIDEGATE_LOG_FORMAT: json
TIDEGATE_DRAIN_DELAY: {{ include "tidegate.drainDelay" . }}
{{- with .Values.tls.grpc }}
{{- if .secretName }}
TIDEGATE_TLS_CERT: /etc/tidegate/tls-grpc/tls.crt
TIDEGATE_TLS_KEY: /etc/tidegate/tls-grpc/tls.key
{{- if .clientCa }}
TIDEGATE_TLS_CLIENT_CA: /etc/tidegate/tls-grpc/ca.crt
{{- end }}
{{- with .allowSan }}
TIDEGATE_TLS_ALLOW_SAN: {{ join "," . | quote }}
{{- end }}
{{- end }}
{{- end }}
{{- if .Values.tls.http.secretName }}
TIDEGATE_HTTP_TLS_CERT: /etc/tidegate/tls-http/tls.crt
TIDEGATE_HTTP_TLS_KEY: /etc/tidegate/tls-http/tls.key
{{- end }}
{{- with .Values.tokens }}
{{- if .secretName }}
TIDEGATE_HTTP_TOKEN_FILE: {{ printf "/etc/tidegate/tokens/%s" .key | quote }}
{{- end }}
{{- end }}
{{- with .Values.control }}
{{- if .reach }}
TIDEGATE_CONTROL: {{ .reach }}
{{- end }}
{{- if .console }}
TIDEGATE_CONSOLE: "true"
{{- end }}
{{- end }}
{{- with .Values.counters }}
{{- if .url }}
TIDEGATE_COUNTERS: {{ .url | quote }}
{{- with .password }}
{{- if .secretName }}
TIDEGATE_COUNTERS_PASSWORD_FILE: {{ printf "/etc/tidegate/store-password/%s" .key | quote }}
{{- end }}
{{- end }}
{{- with .ca }}
{{- if .secretName }}
TIDEGATE_COUNTERS_CA: {{ printf "/etc/tidegate/store-ca/%s" .key | quote }}
{{- end }}
{{- end }}
{{- if .certificate.secretName }}
TIDEGATE_COUNTERS_CERT: /etc/tidegate/store-certificate/tls.crt
TIDEGATE_COUNTERS_KEY: /etc/tidegate/store-certificate/tls.key
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- /* A list of variables. Those of `env` and `extraEnv` replace variables of the chart: a name may be in the list once. */}}
{{- define "tidegate.env" -}}
{{- $own := .Values.env }}
{{- range .Values.extraEnv }}
{{- $own = merge (dict .name "") $own }}
{{- end }}
{{- range $name, $value := include "tidegate.variables" . | fromYaml }}
{{- if not (hasKey $own $name) }}
- { name: {{ $name }}, value: {{ $value | quote }} }
{{- end }}
{{- end }}
{{- /* Numbers of a values file are floating-point numbers, which JSON writes without an exponent. */}}
{{- range $name, $value := .Values.env }}
- { name: {{ $name }}, value: {{ kindIs "string" $value | ternary $value (toJson $value) | quote }} }
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
