{{/* What metrics need in a pod and in the configuration. Each takes the values of this chart, and is empty without metrics. */}}

{{/* Labels of the pod, which the PodMonitor and the NetworkPolicy select. */}}
{{- define "credbroker.metricsLabels" -}}
{{- if .metrics.enabled -}}
credbroker.io/metrics: "true"
{{- end }}
{{- end }}

{{/* An item of `ports` of the broker's container. */}}
{{- define "credbroker.metricsPort" -}}
{{- if .metrics.enabled -}}
- name: metrics
  containerPort: {{ .metrics.port | int64 }}
{{- end }}
{{- end }}

{{/* The section `metrics` of the configuration. */}}
{{- define "credbroker.metricsSection" -}}
{{- if .metrics.enabled -}}
{{- if .config.metrics }}
{{- fail "metrics.enabled writes the section `metrics` of the configuration; remove config.metrics" }}
{{- end -}}
metrics:
  listen: {{ printf "%s:%d" .metrics.address (.metrics.port | int64) | quote }}
  exposure: Pod
  providerNames: {{ .metrics.providerNames }}
{{- end }}
{{- end }}
