{{- define "gateway.name" -}}
{{ .Values.name | default .Release.Name }}
{{- end }}

{{- define "gateway.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}{{ .Values.serviceAccount.name | default (include "gateway.name" .) }}
{{- else }}{{ .Values.serviceAccount.name | default "default" }}
{{- end }}
{{- end }}

{{/* Gateways of Istio select the label istio. */}}
{{- define "gateway.selector" -}}
app: {{ .Values.labels.app | default (include "gateway.name" .) | quote }}
istio: {{ .Values.labels.istio | default (include "gateway.name" . | trimPrefix "istio-") | quote }}
{{- end }}

{{- define "gateway.labels" -}}
{{ include "gateway.selector" . }}
app.kubernetes.io/name: {{ include "gateway.name" . }}
app.kubernetes.io/part-of: moonsail
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- with omit .Values.labels "app" "istio" }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "gateway.controlPlane" -}}
{{- if .Values.rbac.controlPlane }}{{ .Values.rbac.controlPlane }}
{{- else }}moonsail{{ with .Values.revision }}{{ if ne . "default" }}-{{ . }}{{ end }}{{ end }}
{{- end }}
{{- end }}

{{/*
Refuses unknown names under global. The list has the names of all charts, which may share a file of values. As a part of another chart
this one accepts all names, since that chart may have its own.
*/}}
{{- define "gateway.checkGlobal" -}}
{{- if .Chart.IsRoot }}
{{- range $name, $_ := .Values.global }}
{{- if not (has $name (list "caAddress" "configValidation" "defaultPodDisruptionBudget" "hub" "imagePullPolicy" "imagePullSecrets" "istioNamespace" "logAsJson" "logging" "meshID" "multiCluster" "network" "networkPolicy" "platform" "priorityClassName" "proxy" "tag")) }}{{ fail (printf "global.%s: unknown value: remove it" $name) }}{{ end }}
{{- end }}
{{- end }}
{{- end }}
