{{- define "base.labels" -}}
app.kubernetes.io/name: moonsail-base
app.kubernetes.io/part-of: moonsail
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- with .Values.labels }}
{{ toYaml . }}
{{- end }}
{{- end }}
