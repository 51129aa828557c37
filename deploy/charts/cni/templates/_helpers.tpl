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

{{/* GKE has another folder of plugins. */}}
{{- define "cni.binDir" -}}
{{- .Values.cniBinDir | default (ternary "/home/kubernetes/bin" "/opt/cni/bin" (eq (.Values.global.platform | default "") "gke")) }}
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
{{- with .Values.logging.level | default ((.Values.global.logging).level | default "" | trimPrefix "default:") }}
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

{{/*
Refuses unknown names under global. The list has the names of all charts, which may share a file of values. As a part of another chart
this one accepts all names, since that chart may have its own.
*/}}
{{- define "cni.checkGlobal" -}}
{{- if .Chart.IsRoot }}
{{- range $name, $_ := .Values.global }}
{{- if not (has $name (list "caAddress" "configValidation" "defaultPodDisruptionBudget" "hub" "imagePullPolicy" "imagePullSecrets" "istioNamespace" "logAsJson" "logging" "meshID" "multiCluster" "network" "networkPolicy" "platform" "priorityClassName" "proxy" "tag")) }}{{ fail (printf "global.%s: unknown value: remove it" $name) }}{{ end }}
{{- end }}
{{- end }}
{{- end }}
