{{/* The items of a pod's specification that the broker needs. Each takes the values of this chart. */}}

{{- define "credbroker.securityContext" -}}
runAsUser: {{ .uid | int64 }}
runAsGroup: {{ .uid | int64 }}
runAsNonRoot: true
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{/* For pods. A broker uses other values of these keys after a restart, so a change of them makes new pods. It follows all
other keys of its configuration by itself. */}}
{{- define "credbroker.podAnnotations" -}}
{{- $limits := pick (.config.limits | default dict) "connections" "bytes" -}}
{{- $metrics := include "credbroker.metricsSection" . -}}
checksum/credbroker: {{ dict "config" (pick .config "listen" "metrics" "audit") "limits" $limits "metrics" $metrics | toJson | sha256sum }}
{{- end }}

{{/* For pods: what the NetworkPolicies and the PodMonitor select. */}}
{{- define "credbroker.podLabels" -}}
credbroker.io/sidecar: "true"
{{- with include "credbroker.metricsLabels" . }}
{{ . }}
{{- end }}
{{- end }}

{{- define "credbroker.initContainers" -}}
{{- if eq .shim "copy" }}
- name: credbroker-exec
  image: {{ .image }}
  {{- with .imagePullPolicy }}
  imagePullPolicy: {{ . }}
  {{- end }}
  command: [/usr/bin/install, -D, -m, "0555", /usr/bin/credbroker-exec, /opt/credbroker/bin/credbroker-exec]
  securityContext: {{- include "credbroker.securityContext" (dict "uid" .uid) | nindent 4 }}
  resources:
    requests:
      cpu: 10m
      memory: 16Mi
    limits:
      memory: 32Mi
  volumeMounts:
  - name: credbroker-exec
    mountPath: /opt/credbroker
{{- end }}
- name: credbroker
  image: {{ .image }}
  {{- with .imagePullPolicy }}
  imagePullPolicy: {{ . }}
  {{- end }}
  restartPolicy: Always
  command: [/usr/bin/credbroker]
  args: [serve, --config, /etc/credbroker/config.yaml, --log-format, json]
  env:
  - name: HOME
    value: /tmp
  {{- with .env }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- with .envFrom }}
  envFrom: {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- if or .ports .metrics.enabled }}
  ports:
  {{- include "credbroker.metricsPort" . | nindent 2 }}
  {{- with .ports }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- end }}
  startupProbe:
    exec:
      command: [/usr/bin/credbroker, healthcheck]
    periodSeconds: 1
    timeoutSeconds: 10
    failureThreshold: 60
  livenessProbe:
    exec:
      command: [/usr/bin/credbroker, healthcheck]
    periodSeconds: 20
    timeoutSeconds: 10
    failureThreshold: 3
  terminationMessagePolicy: FallbackToLogsOnError
  securityContext: {{- include "credbroker.securityContext" (dict "uid" .uid) | nindent 4 }}
  resources: {{- toYaml .resources | nindent 4 }}
  volumeMounts:
  {{- if .fleet }}
  - name: credbroker-hub
    mountPath: /var/run/secrets/kubernetes.io/serviceaccount
    readOnly: true
  {{- end }}
  - name: credbroker
    mountPath: /run/credbroker
  - name: credbroker-config
    mountPath: /etc/credbroker
    readOnly: true
  - name: credbroker-tmp
    mountPath: /tmp
  {{- with .volumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{- define "credbroker.volumes" -}}
- name: credbroker
  emptyDir:
    medium: Memory
    sizeLimit: 1Mi
- name: credbroker-config
  configMap:
    name: credbroker
- name: credbroker-tmp
  emptyDir:
    medium: Memory
    sizeLimit: {{ .tmpSizeLimit }}
{{- if .fleet }}
- name: credbroker-hub
  projected:
    defaultMode: 0444
    sources:
    - serviceAccountToken:
        path: token
        expirationSeconds: 3600
    - configMap:
        name: kube-root-ca.crt
        items:
        - key: ca.crt
          path: ca.crt
    - downwardAPI:
        items:
        - path: namespace
          fieldRef:
            apiVersion: v1
            fieldPath: metadata.namespace
{{- end }}
{{- if eq .shim "copy" }}
- name: credbroker-exec
  emptyDir:
    sizeLimit: 16Mi
{{- else if eq .shim "image" }}
- name: credbroker-exec
  image:
    reference: {{ .shimImage }}
    pullPolicy: {{ .imagePullPolicy | default "IfNotPresent" }}
{{- end }}
{{- with .volumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* What each container that uses the broker needs. */}}
{{- define "credbroker.clientEnv" -}}
- name: CREDBROKER_BROKER_UID
  value: {{ .uid | int64 | quote }}
{{- end }}

{{- define "credbroker.clientVolumeMounts" -}}
- name: credbroker
  mountPath: /run/credbroker
  readOnly: true
{{- if ne .shim "none" }}
- name: credbroker-exec
  mountPath: /opt/credbroker
  readOnly: true
{{- end }}
{{- end }}
