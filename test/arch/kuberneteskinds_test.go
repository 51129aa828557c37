package arch

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

const gatewayAPI = "gateway.networking.k8s.io/v1"

// Specs that fields of the Gateway API need.
const (
	httpListener  = `listeners: [{name: http, port: 80, protocol: HTTP}]`
	httpsListener = `listeners: [{name: https, port: 443, protocol: HTTPS, hostname: a.example.com, tls: {certificateRefs: [{name: cert}]}}]`
	tlsListener   = `listeners: [{name: tls, port: 443, protocol: TLS, tls: {certificateRefs: [{name: cert}]}}]`
	selecting     = `listeners: [{name: http, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: Selector, selector: {matchLabels: {a: b}}}}}]`
	routed        = `parentRefs: [{name: web}], rules: [{backendRefs: [{name: web, port: 80}]}]`
)

func filtered(filter string) string {
	return `{parentRefs: [{name: web}], rules: [{filters: [` + filter + `], backendRefs: [{name: web, port: 80}]}]}`
}

func filteredBackend(filter string) string {
	return `{parentRefs: [{name: web}], rules: [{backendRefs: [{name: web, port: 80, filters: [` + filter + `]}]}]}`
}

// listenerBases are bases for the listeners of Gateways and ListenerSets.
func listenerBases(beside string) map[string]string {
	return map[string]string{
		"listeners[].tls":                               `{` + beside + httpsListener + `}`,
		"listeners[].tls.mode":                          `{` + beside + tlsListener + `}`,
		"listeners[].protocol":                          `{` + beside + httpsListener + `}` + "\n---\n" + `{` + beside + httpListener + `}`,
		"listeners[].allowedRoutes.namespaces.selector": `{` + beside + selecting + `}`,
	}
}

var listenerSamples = map[string]string{
	"listeners[].protocol": `[HTTPS, TLS, TCP, UDP]`, "listeners[].tls.mode": `[Terminate, Passthrough]`, "listeners[].allowedRoutes.namespaces.from": `[All]`, "certificateRefs[].kind": `[Secret, x]`,
	"certificateRefs[].group": `["", x]`, "certificateRefs[].namespace": `[c]`, "kinds[].kind": `[HTTPRoute, TCPRoute]`, "kinds[].group": `[gateway.networking.k8s.io, x]`,
	"options": `[{gateway.istio.io/tls-terminate-mode: ISTIO_MUTUAL}, {example.com/a: b}]`, "matchExpressions[].operator": `[NotIn]`,
}

// filterBases are bases for the filters of routes.
func filterBases() map[string]string {
	out := map[string]string{}
	for at, with := range map[string]func(string) string{"rules[].filters[]": filtered, "rules[].backendRefs[].filters[]": filteredBackend} {
		header := `{set: [{name: a, value: b}], add: [{name: c, value: d}]}`
		out[at+".type"] = with(`{requestHeaderModifier: ` + header + `}`)
		out[at+".requestHeaderModifier"] = with(`{type: RequestHeaderModifier, requestHeaderModifier: ` + header + `}`)
		out[at+".responseHeaderModifier"] = with(`{type: ResponseHeaderModifier, responseHeaderModifier: ` + header + `}`)
		out[at+".requestMirror"] = with(`{type: RequestMirror, requestMirror: {backendRef: {name: m, port: 80}}}`)
		out[at+".requestMirror.fraction"] = with(`{type: RequestMirror, requestMirror: {backendRef: {name: m, port: 80}, fraction: {numerator: 1, denominator: 50}}}`)
		out[at+".requestRedirect"] = with(`{type: RequestRedirect, requestRedirect: {statusCode: 302}}`)
		out[at+".requestRedirect.path"] = with(`{type: RequestRedirect, requestRedirect: {path: {type: ReplaceFullPath}}}`)
		out[at+".requestRedirect.path.replacePrefixMatch"] = with(`{type: RequestRedirect, requestRedirect: {path: {type: ReplacePrefixMatch}}}`)
		out[at+".urlRewrite"] = with(`{type: URLRewrite, urlRewrite: {}}`)
		out[at+".urlRewrite.path"] = with(`{type: URLRewrite, urlRewrite: {path: {type: ReplaceFullPath}}}`)
		out[at+".urlRewrite.path.replacePrefixMatch"] = with(`{type: URLRewrite, urlRewrite: {path: {type: ReplacePrefixMatch}}}`)
		out[at+".cors"] = with(`{type: CORS, cors: {allowOrigins: ["https://a.example.com"]}}`)
		out[at+".externalAuth"] = with(`{type: ExternalAuth}`)
		out[at+".extensionRef"] = with(`{type: ExtensionRef}`)
	}
	return merged(out, backendBases(""))
}

// backendBases are bases for the references of routes to backends.
func backendBases(beside string) map[string]string {
	const route = `parentRefs: [{name: web}], rules: [{backendRefs: [{%s, name: a.example.com, port: 80}]}]`
	return map[string]string{
		"rules[].backendRefs[].group": `{` + beside + fmt.Sprintf(route, "kind: Hostname") + `}`,
		"rules[].backendRefs[].kind":  `{` + beside + fmt.Sprintf(route, "group: networking.istio.io") + `}`,
	}
}

var routeSamples = map[string]string{
	"parentRefs[].kind": `[Service, ListenerSet, x]`, "parentRefs[].group": `["", x]`, "hostnames[]": `[a.example.com]`, "path.type": `[Exact, PathPrefix, RegularExpression]`, "path.value": `[/a]`,
	"headers[].type": `[Exact, RegularExpression]`, "queryParams[].type": `[Exact, RegularExpression]`, "matches[].method": `[GET]`, "method.type": `[Exact, RegularExpression]`,
	"filters[].type": `[RequestHeaderModifier]`, "backendRef.group": `["", x]`, "backendRef.kind": `[Service, x]`, "backendRefs[].group": `[networking.istio.io]`, "backendRefs[].kind": `[Hostname, x]`,
	"requestRedirect.scheme": `[http, https]`, "requestRedirect.statusCode": `[301]`, "requestRedirect.hostname": `[b.example.com]`, "urlRewrite.hostname": `[b.example.com]`, "path.replaceFullPath": `[/b]`, "path.replacePrefixMatch": `[/b]`,
	"requestRedirect.path.type": `[ReplaceFullPath, ReplacePrefixMatch]`, "urlRewrite.path.type": `[ReplaceFullPath, ReplacePrefixMatch]`,
	"allowOrigins[]": `["https://b.example.com"]`, "allowMethods[]": `[GET]`, "timeouts.request": `[3s]`, "timeouts.backendRequest": `[3s]`, "retry.codes[]": `[503]`, "retry.backoff": `[1s]`, "absoluteTimeout": `[1h]`, "idleTimeout": `[1h]`,
	"matches[].path.type": `[Exact, RegularExpression]`, "useDefaultGateways": `[All]`, "requestMirror.backendRef.namespace": `[c]`,
}

var routeBeside = map[string]string{
	"matches[].path": `{value: /a}`, "matches[].headers[]": `{name: h, value: v}`, "queryParams[]": `{name: q, value: v}`, "matches[].method": `{service: s, method: m}`, "sessionPersistence": `{}`,
}

// apiDefaults are default values of references.
var apiDefaults = map[string]string{
	"certificateRefs[].group": "", "certificateRefs[].kind": "Secret", "kinds[].group": "gateway.networking.k8s.io", "kinds[].kind": "HTTPRoute", "clientCertificateRef.group": "", "clientCertificateRef.kind": "Secret",
	"parentRef.group": "gateway.networking.k8s.io", "parentRef.kind": "Gateway", "backendRef.group": "", "backendRef.kind": "Service", "targetRefs[].group": "", "caCertificateRefs[].group": "",
}

// gatewayAPIKinds are the kinds of the Gateway API that are read.
var gatewayAPIKinds = []fieldKind{
	{title: "GatewayClass", apiVersion: gatewayAPI, kind: "GatewayClass", object: gatewayv1.GatewayClass{}, base: `{controllerName: istio.io/gateway-controller}`},
	{title: "Gateway of the Gateway API", apiVersion: gatewayAPI, kind: "Gateway", object: gatewayv1.Gateway{}, defaults: apiDefaults, base: `{gatewayClassName: istio, ` + httpListener + `}`,
		bases: merged(listenerBases("gatewayClassName: istio, "), map[string]string{"allowedListeners.namespaces.selector": `{gatewayClassName: istio, allowedListeners: {namespaces: {from: Selector}}, ` + httpListener + `}`}),
		beside: map[string]string{"kinds[]": `{kind: GRPCRoute}`, "clientCertificateRef": `{name: client}`, "matchExpressions[]": `{key: a, operator: In, values: [b]}`, "caCertificateRefs[]": `{group: "", kind: ConfigMap, name: ca}`,
			"perPort[]": `{port: 443}`},
		samples: merged(listenerSamples, map[string]string{"gatewayClassName": `[istio, other]`, "addresses[].type": `[IPAddress, Hostname, NamedAddress]`, "clientCertificateRef.kind": `[Secret, x]`, "clientCertificateRef.group": `["", x]`,
			"clientCertificateRef.namespace": `[c]`, "caCertificateRefs[].kind": `[ConfigMap, x]`, "caCertificateRefs[].group": `["", x]`, "validation.mode": `[AllowInsecureFallback]`, "allowedListeners.namespaces.from": `[All]`})},
	{title: "ListenerSet", apiVersion: gatewayAPI, kind: "ListenerSet", object: gatewayv1.ListenerSet{}, defaults: apiDefaults, base: `{parentRef: {name: web}, ` + httpListener + `}`,
		bases: listenerBases("parentRef: {name: web}, "), beside: map[string]string{"matchExpressions[]": `{key: a, operator: In, values: [b]}`, "kinds[]": `{kind: GRPCRoute}`},
		samples: merged(listenerSamples, map[string]string{"parentRef.kind": `[Gateway, x]`, "parentRef.group": `[gateway.networking.k8s.io, x]`})},
	{title: "HTTPRoute", apiVersion: gatewayAPI, kind: "HTTPRoute", object: gatewayv1.HTTPRoute{}, defaults: apiDefaults, base: `{` + routed + `}`, bases: filterBases(), beside: routeBeside, samples: routeSamples},
	{title: "GRPCRoute", apiVersion: gatewayAPI, kind: "GRPCRoute", object: gatewayv1.GRPCRoute{}, defaults: apiDefaults, base: `{` + routed + `}`, bases: filterBases(), beside: routeBeside,
		samples: without(routeSamples, "matches[].method")},
	{title: "TLSRoute", apiVersion: gatewayAPI, kind: "TLSRoute", object: gatewayv1.TLSRoute{}, defaults: apiDefaults, base: `{hostnames: [a.example.com], ` + routed + `}`, bases: backendBases("hostnames: [a.example.com], "),
		samples: merged(routeSamples, map[string]string{"hostnames[]": `[b.example.com]`})},
	{title: "TCPRoute", apiVersion: gatewayAPI, kind: "TCPRoute", object: gatewayv1.TCPRoute{}, defaults: apiDefaults, base: `{` + routed + `}`, bases: backendBases(""), samples: routeSamples},
	{title: "ReferenceGrant", apiVersion: gatewayAPI, kind: "ReferenceGrant", object: gatewayv1.ReferenceGrant{},
		base:    `{from: [{group: gateway.networking.k8s.io, kind: HTTPRoute, namespace: c}], to: [{group: "", kind: Service}]}`,
		samples: map[string]string{"from[].group": `[gateway.networking.k8s.io]`}},
	{title: "BackendTLSPolicy", apiVersion: gatewayAPI, kind: "BackendTLSPolicy", object: gatewayv1.BackendTLSPolicy{}, defaults: apiDefaults,
		base: `{targetRefs: [{group: "", kind: Service, name: web}], validation: {hostname: web.example.com, wellKnownCACertificates: System}}`,
		bases: map[string]string{
			"targetRefs[].group":                 `{targetRefs: [{kind: ServiceEntry, name: web}], validation: {hostname: web.example.com, wellKnownCACertificates: System}}`,
			"validation.caCertificateRefs[]":     `{targetRefs: [{group: "", kind: Service, name: web}], validation: {hostname: web.example.com, caCertificateRefs: [{group: "", kind: ConfigMap, name: ca}]}}`,
			"validation.subjectAltNames[]":       `{targetRefs: [{group: "", kind: Service, name: web}], validation: {hostname: web.example.com, wellKnownCACertificates: System, subjectAltNames: [{type: Hostname, hostname: a.example.com}]}}`,
			"validation.subjectAltNames[].uri":   `{targetRefs: [{group: "", kind: Service, name: web}], validation: {hostname: web.example.com, wellKnownCACertificates: System, subjectAltNames: [{type: URI}]}}`,
			"validation.wellKnownCACertificates": `{targetRefs: [{group: "", kind: Service, name: web}], validation: {hostname: web.example.com, caCertificateRefs: []}}`,
		},
		samples: map[string]string{"targetRefs[].group": `[networking.istio.io]`, "targetRefs[].kind": `[Service, x]`, "targetRefs[].name": `[x]`, "caCertificateRefs[].group": `["", x]`, "caCertificateRefs[].kind": `[ConfigMap, x]`,
			"wellKnownCACertificates": `[System]`, "subjectAltNames[].type": `[Hostname]`, "subjectAltNames[].hostname": `[b.example.com]`, "subjectAltNames[].uri": `["spiffe://a/b"]`}},
}

// merged joins tables; the last one that has a key counts.
func merged(tables ...map[string]string) map[string]string {
	out := map[string]string{}
	for _, t := range tables {
		for k, v := range t {
			out[k] = v
		}
	}
	return out
}

// without is a table without one key.
func without(table map[string]string, key string) map[string]string {
	out := merged(table)
	delete(out, key)
	return out
}

const readyEndpoint = `{metadata: {labels: {kubernetes.io/service-name: web}}, addressType: IPv4, endpoints: [{addresses: [10.2.0.1]}], ports: [{name: http, port: 8080}]}`

// kubernetesKinds are Kubernetes' own kinds that are read.
var kubernetesKinds = []fieldKind{
	{title: "Service", apiVersion: "v1", kind: "Service", object: corev1.Service{}, whole: true,
		base: `{spec: {clusterIP: 10.1.0.1, selector: {a: b}, ports: [{name: http, port: 80}]}}`,
		bases: map[string]string{"spec.externalName": `{spec: {type: ExternalName}}`, "spec.clusterIPs[]": `{spec: {clusterIP: 10.1.0.1, ports: [{name: http, port: 80}]}}`,
			"spec.type": `{spec: {externalName: a.example.com, ports: [{name: http, port: 80}]}}`},
		samples: map[string]string{"ports[].protocol": `[UDP]`, "targetPort": `[8080, http]`, "clusterIP": `[10.1.0.2, None]`, "clusterIPs[]": `[10.1.0.3]`, "spec.type": `[ClusterIP, NodePort, LoadBalancer, ExternalName]`, "externalName": `[a.example.com]`,
			"sessionAffinity": `[ClientIP]`, "ipFamilies[]": `[IPv6]`, "internalTrafficPolicy": `[Local]`, "externalTrafficPolicy": `[Local]`, "trafficDistribution": `[PreferSameZone, PreferSameNode]`, "externalIPs[]": `[203.0.113.1]`, "appProtocol": `[kubernetes.io/h2c]`}},
	{title: "EndpointSlice", apiVersion: "discovery.k8s.io/v1", kind: "EndpointSlice", object: discoveryv1.EndpointSlice{}, whole: true, base: readyEndpoint,
		bases:   map[string]string{"endpoints[].conditions.serving": `{metadata: {labels: {kubernetes.io/service-name: web}}, addressType: IPv4, endpoints: [{addresses: [10.2.0.1], conditions: {ready: false}}], ports: [{name: http, port: 8080}]}`},
		beside:  map[string]string{"endpoints[].targetRef": `{kind: Pod, name: p, group: null, namespace: null}`},
		samples: map[string]string{"addressType": `[IPv4, FQDN]`, "addresses[]": `[10.2.0.2]`, "targetRef.kind": `[Pod]`, "targetRef.namespace": `[c]`, "ports[].protocol": `[UDP]`}},
	{title: "Pod", apiVersion: "v1", kind: "Pod", object: corev1.Pod{}, whole: true, rest: "The other fields concern the kubelet, the scheduler and injection.",
		base:    `{spec: {containers: [{name: app, image: app, ports: [{name: http, containerPort: 8080}]}]}, status: {podIP: 10.2.0.1}}`,
		bases:   map[string]string{"spec.initContainers[]": `{spec: {initContainers: [{name: app, restartPolicy: Always, ports: [{name: http, containerPort: 8080}]}]}, status: {podIP: 10.2.0.1}}`},
		beside:  map[string]string{"status.conditions[]": `{type: Ready, status: "False"}`},
		samples: map[string]string{"podIP": `[10.2.0.2]`, "podIPs[].ip": `[10.2.0.3]`, "ports[].protocol": `[UDP]`, "status.phase": `[Failed]`, "spec.initContainers[].restartPolicy": `[Always]`, "conditions[].type": `[Ready]`, "conditions[].status": `["False"]`}},
	{title: "Namespace", apiVersion: "v1", kind: "Namespace", object: corev1.Namespace{}, whole: true, base: `{}`, rest: "Only labels and annotations count."},
	{title: "Node", apiVersion: "v1", kind: "Node", object: corev1.Node{}, whole: true, base: `{}`, rest: "Only labels count: those of the locality."},
	{title: "Secret", apiVersion: "v1", kind: "Secret", object: corev1.Secret{}, whole: true, base: `{}`,
		samples: map[string]string{"data": `[{cacert: YQ==}]`, "stringData": `[{cacert: a}]`, "type": `[kubernetes.io/dockerconfigjson]`}},
	{title: "ConfigMap with CAs", apiVersion: "v1", kind: "ConfigMap", object: corev1.ConfigMap{}, whole: true, base: `{data: {ca.crt: a}}`,
		samples: map[string]string{"data": `[{ca.crt: b}]`, "binaryData": `[{a: YQ==}]`}},
	{title: "Ingress", apiVersion: "networking.k8s.io/v1", kind: "Ingress", object: networkingv1.Ingress{}, whole: true,
		base: `{spec: {rules: [{host: a.example.com, http: {paths: [{path: /a, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}}]}}`,
		bases: map[string]string{"spec.tls[].hosts[]": `{spec: {tls: [{secretName: a}]}}`,
			"spec.rules[].http.paths[].backend.resource": `{spec: {rules: [{host: a.example.com, http: {paths: [{path: /a, pathType: Prefix}]}}]}}`},
		samples: map[string]string{"pathType": `[Prefix]`, "paths[].path": `[/b]`}},
	{title: "IngressClass", apiVersion: "networking.k8s.io/v1", kind: "IngressClass", object: networkingv1.IngressClass{}, whole: true, base: `{}`,
		samples: map[string]string{"spec.controller": `[istio.io/ingress-controller]`}},
}
