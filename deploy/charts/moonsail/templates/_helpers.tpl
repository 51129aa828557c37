{{/* The revision; "default" if the value is empty, as in Istio. */}}
{{- define "moonsail.revision" -}}
{{ .Values.revision | default "default" }}
{{- end }}

{{/* What the names of a revision's objects end with. Other objects of the charts, of other revisions and of tags have some of these names. */}}
{{- define "moonsail.suffix" -}}
{{- $revision := include "moonsail.revision" . }}
{{- if regexMatch "^(authorities|cni|cni-untaint|credentials|edit|extend|gateways|view|(authorities|credentials|tag)-.*)$" $revision }}{{ fail (printf "revision: %s: moonsail-%s is the name of another object of Moonsail: choose another name" $revision $revision) }}{{ end }}
{{- if ne $revision "default" }}-{{ $revision }}{{ end }}
{{- end }}

{{- define "moonsail.name" -}}
moonsail{{ include "moonsail.suffix" . }}
{{- end }}

{{/* The Service to which proxies connect. That of the default revision has the name that Istio's proxies know. */}}
{{- define "moonsail.xdsService" -}}
{{- if include "moonsail.suffix" . }}{{ include "moonsail.name" . }}{{ else }}istiod{{ end }}
{{- end }}

{{/* An image: a whole reference as it is, else hub/image:tag. */}}
{{- define "moonsail.reference" -}}
{{- $v := .context.Values }}
{{- if regexMatch "[/:@]" .image }}{{ .image }}
{{- else }}{{ with $v.hub | default $v.global.hub }}{{ . }}/{{ end }}{{ .image }}:{{ $tag := $v.tag | default $v.global.tag | default .context.Chart.AppVersion }}{{ if kindIs "string" $tag }}{{ $tag }}{{ else }}{{ toJson $tag }}{{ end }}
{{- end }}
{{- end }}

{{- define "moonsail.image" -}}
{{ include "moonsail.reference" (dict "context" . "image" .Values.image) }}
{{- end }}

{{- define "moonsail.labels" -}}
app: {{ include "moonsail.name" . }}
app.kubernetes.io/name: moonsail
{{ include "moonsail.releaseLabels" . }}
istio.io/rev: {{ include "moonsail.revision" . | quote }}
{{- end }}

{{- define "moonsail.releaseLabels" -}}
app.kubernetes.io/part-of: moonsail
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}

{{/*
What istioctl and Kiali look for. They find control planes by app: istiod and the revision, on Deployments, Pods and Services.
Pods lack istio: pilot: the selectors of istiod's default revision have it, and those of other revisions have istio.io/rev, so that
none of them selects our Pods.
*/}}
{{- define "moonsail.istiodLabels" -}}
app: istiod
app.kubernetes.io/name: moonsail
istio.io/rev: {{ include "moonsail.revision" . | quote }}
{{- end }}

{{/* The Pods of this control plane. Istio's selectors and those of other revisions select other Pods. */}}
{{- define "moonsail.selector" -}}
{app.kubernetes.io/name: moonsail, istio.io/rev: {{ include "moonsail.revision" . | quote }}}
{{- end }}

{{/* The webhooks of injection: those of a revision or tag, and those of the default one. "name" is the revision or tag. */}}
{{- define "moonsail.injectionWebhook" -}}
- name: {{ .prefix }}sidecar-injector.moonsail.dev
  clientConfig:
    service: {name: {{ include "moonsail.name" .context }}, namespace: {{ toYaml .context.Release.Namespace }}, path: /inject, port: 443}
  rules:
  - {apiGroups: [""], apiVersions: [v1], resources: [pods], operations: [CREATE]}
  namespaceSelector:
    matchExpressions:
    {{- .namespace | nindent 4 }}
  objectSelector:
    matchExpressions:
    {{- .object | nindent 4 }}
  failurePolicy: {{ .context.Values.sidecarInjectorWebhook.failurePolicy }}
  reinvocationPolicy: {{ .context.Values.sidecarInjectorWebhook.reinvocationPolicy }}
  timeoutSeconds: 10
  sideEffects: None
  admissionReviewVersions: [v1]
{{- end }}

{{- define "moonsail.injectionWebhooks" }}
{{- $name := .name }}
{{- if eq $name "default" }}
{{ include "moonsail.injectionWebhook" (dict "context" .context "prefix" "namespace."
  "namespace" "- {key: istio-injection, operator: In, values: [enabled]}"
  "object" "- {key: sidecar.istio.io/inject, operator: NotIn, values: [\"false\"]}") }}
{{ include "moonsail.injectionWebhook" (dict "context" .context "prefix" "object."
  "namespace" "- {key: istio-injection, operator: DoesNotExist}\n- {key: istio.io/rev, operator: DoesNotExist}"
  "object" "- {key: sidecar.istio.io/inject, operator: In, values: [\"true\"]}\n- {key: istio.io/rev, operator: DoesNotExist}") }}
{{- end }}
{{ include "moonsail.injectionWebhook" (dict "context" .context "prefix" "rev.namespace."
  "namespace" (printf "- {key: istio.io/rev, operator: In, values: [%q]}\n- {key: istio-injection, operator: DoesNotExist}" $name)
  "object" "- {key: sidecar.istio.io/inject, operator: NotIn, values: [\"false\"]}") }}
{{ include "moonsail.injectionWebhook" (dict "context" .context "prefix" "rev.object."
  "namespace" "- {key: istio.io/rev, operator: DoesNotExist}\n- {key: istio-injection, operator: DoesNotExist}"
  "object" (printf "- {key: sidecar.istio.io/inject, operator: NotIn, values: [\"false\"]}\n- {key: istio.io/rev, operator: In, values: [%q]}" $name)) }}
{{- if and (eq $name "default") .context.Values.sidecarInjectorWebhook.enableNamespacesByDefault }}
{{ include "moonsail.injectionWebhook" (dict "context" .context "prefix" "auto."
  "namespace" "- {key: istio-injection, operator: DoesNotExist}\n- {key: istio.io/rev, operator: DoesNotExist}\n- {key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system, kube-public, kube-node-lease, local-path-storage]}"
  "object" "- {key: sidecar.istio.io/inject, operator: DoesNotExist}\n- {key: istio.io/rev, operator: DoesNotExist}") }}
{{- end }}
{{- end }}

{{- define "moonsail.xdsPorts" -}}
- {name: https-dns, port: 15012, targetPort: 15012, protocol: TCP}
- {name: http-monitoring, port: 15014, targetPort: 15014}
{{- end }}

{{/* How the Services use IP families, as in Istio. */}}
{{- define "moonsail.ipFamilies" -}}
{{- with .Values.ipFamilyPolicy }}
ipFamilyPolicy: {{ . }}
{{- end }}
{{- with .Values.ipFamilies }}
ipFamilies: {{ toJson . }}
{{- end }}
{{- end }}

{{/* The ConfigMap with MeshConfig. A revision that sets meshConfig has its own. */}}
{{- define "moonsail.meshConfigMap" -}}
{{- if .Values.meshConfigMap }}{{ .Values.meshConfigMap }}
{{- else if and (include "moonsail.suffix" .) .Values.meshConfig }}istio-{{ .Values.revision }}
{{- else }}istio{{ end }}
{{- end }}

{{/* Not empty if the control plane issues no certificates. */}}
{{- define "moonsail.externalCA" -}}
{{- or .Values.externalCA.csiDriver .Values.externalCA.secretName }}
{{- end }}

{{/* The configuration of injection, as for `moonsail inject`. */}}
{{- define "moonsail.injection" -}}
{{- $v := .Values }}
{{- $w := $v.sidecarInjectorWebhook }}
{{- $image := .Values.image }}
{{- with $v.global.proxy.image }}{{ $image = . }}{{ end }}
{{- $config := dict
  "image" (include "moonsail.reference" (dict "context" . "image" $image))
  "xdsAddress" (printf "%s.%s.svc:15012" (include "moonsail.xdsService" .) .Release.Namespace) }}
{{- if include "moonsail.suffix" . }}{{ $_ := set $config "revision" $v.revision }}{{ end }}
{{- with $v.global.imagePullPolicy }}{{ $_ := set $config "imagePullPolicy" . }}{{ end }}
{{- with $v.global.imagePullSecrets }}{{ $_ := set $config "imagePullSecrets" . }}{{ end }}
{{- with $v.global.meshID }}{{ $_ := set $config "meshID" . }}{{ end }}
{{- with $v.global.network }}{{ $_ := set $config "network" . }}{{ end }}
{{- with $v.global.multiCluster.clusterName }}{{ $_ := set $config "clusterID" . }}{{ end }}
{{- with $v.global.proxy.clusterDomain }}{{ $_ := set $config "domain" . }}{{ end }}
{{- with $v.global.caAddress }}{{ $_ := set $config "caAddress" . }}{{ end }}
{{- with $v.externalCA.csiDriver }}{{ $_ := set $config "workloadAPI" (dict "driver" . "socket" $v.externalCA.socket) }}{{ end }}
{{- /* No resources (null): sidecars have none. Empty ones, as in values of older charts: the defaults of injection. */}}
{{- if not (hasKey $v.global.proxy "resources") }}{{ $_ := set $config "resources" dict }}
{{- else }}{{ with $v.global.proxy.resources }}{{ $_ := set $config "resources" . }}{{ end }}{{ end }}
{{- if hasKey $v.injection "resources" }}{{ $_ := unset $config "resources" }}{{ end }}
{{- $interception := dict }}
{{- range $name, $default := dict "includeIPRanges" "*" "excludeIPRanges" "" "includeInboundPorts" "*" "excludeInboundPorts" "" "includeOutboundPorts" "" "excludeOutboundPorts" "" }}
{{- $value := get $v.global.proxy $name | toString }}
{{- if and (hasKey $v.global.proxy $name) (ne $value $default) }}{{ $_ := set $interception $name $value }}{{ end }}
{{- end }}
{{- with $interception }}{{ $_ := set $config "values" (dict "global" (dict "proxy" .)) }}{{ end }}
{{- with $v.meshConfig.trustDomain }}{{ $_ := set $config "trustDomain" . }}{{ end }}
{{- with $w.neverInjectSelector }}{{ $_ := set $config "neverInjectSelector" . }}{{ end }}
{{- with $w.alwaysInjectSelector }}{{ $_ := set $config "alwaysInjectSelector" . }}{{ end }}
{{- with $w.injectedAnnotations }}{{ $_ := set $config "injectedAnnotations" . }}{{ end }}
{{- with $w.templates }}{{ $_ := set $config "templates" . }}{{ end }}
{{- with $w.defaultTemplates }}{{ $_ := set $config "defaultTemplates" . }}{{ end }}
{{- if not $w.rewriteAppHTTPProbe }}{{ $_ := set $config "rewriteAppHTTPProbers" false }}{{ end }}
{{- toYaml (mergeOverwrite $config (deepCopy $v.injection)) }}
{{- end }}

{{/*
Refuses unknown names under global. The list has the names of all charts, which may share a file of values. As a part of another chart
this one accepts all names, since that chart may have its own.
*/}}
{{- define "moonsail.checkGlobal" -}}
{{- if .Chart.IsRoot }}
{{- range $name, $_ := .Values.global }}
{{- if not (has $name (list "caAddress" "configValidation" "defaultPodDisruptionBudget" "hub" "imagePullPolicy" "imagePullSecrets" "istioNamespace" "logAsJson" "logging" "meshID" "multiCluster" "network" "networkPolicy" "platform" "priorityClassName" "proxy" "tag")) }}{{ fail (printf "global.%s: unknown value: remove it" $name) }}{{ end }}
{{- end }}
{{- end }}
{{- end }}
