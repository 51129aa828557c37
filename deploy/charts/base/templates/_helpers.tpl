{{- define "base.labels" -}}
app.kubernetes.io/name: moonsail-base
app.kubernetes.io/part-of: moonsail
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- with .Values.labels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/*
Refuses unknown names under global. The list has the names of all charts, which may share a file of values. As a part of another chart
this one accepts all names, since that chart may have its own.
*/}}
{{- define "base.checkGlobal" -}}
{{- if .Chart.IsRoot }}
{{- range $name, $_ := .Values.global }}
{{- if not (has $name (list "caAddress" "configValidation" "defaultPodDisruptionBudget" "hub" "imagePullPolicy" "imagePullSecrets" "istioNamespace" "logAsJson" "logging" "meshID" "multiCluster" "network" "networkPolicy" "platform" "priorityClassName" "proxy" "tag")) }}{{ fail (printf "global.%s: unknown value: remove it" $name) }}{{ end }}
{{- end }}
{{- end }}
{{- end }}
