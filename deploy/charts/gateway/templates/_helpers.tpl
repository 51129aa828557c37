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
