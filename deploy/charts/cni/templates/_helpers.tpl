{{/* The plugin exempts Pods whose names begin with that of the DaemonSet, so that the node agent itself can start. */}}
{{- define "cni.name" -}}
moonsail-cni-node
{{- end }}

{{- define "cni.image" -}}
{{- $v := .Values }}
{{- if regexMatch "[/:@]" $v.image }}{{ $v.image }}
{{- else }}{{ with $v.hub | default $v.global.hub }}{{ . }}/{{ end }}{{ $v.image }}:{{ $v.tag | default $v.global.tag | default .Chart.AppVersion }}
{{- end }}
{{- end }}

{{- define "cni.labels" -}}
app.kubernetes.io/name: moonsail-cni
app.kubernetes.io/part-of: moonsail
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}

{{/* How Pods that started before the plugin are repaired. */}}
{{- define "cni.repair" -}}
{{- $r := .Values.repair }}
{{- if not $r.enabled }}off
{{- else if $r.repairPods }}rules
{{- else if $r.deletePods }}delete
{{- else if $r.labelPods }}label
{{- else }}off
{{- end }}
{{- end }}

{{- define "cni.logging" -}}
{{- with .Values.logging.level }}
- --log-level={{ . }}
{{- end }}
{{- if .Values.global.logAsJson }}
- --log-format=json
{{- end }}
{{- end }}

{{- define "cni.pullSecrets" -}}
{{- with .Values.global.imagePullSecrets }}
imagePullSecrets:
{{- range . }}
- name: {{ . }}
{{- end }}
{{- end }}
{{- end }}
