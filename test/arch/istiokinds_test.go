package arch

import (
	"fmt"
	"strings"

	extensions "istio.io/api/extensions/v1alpha1"
	mesh "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"
	proxyconfig "istio.io/api/networking/v1beta1"
	security "istio.io/api/security/v1"
	telemetry "istio.io/api/telemetry/v1alpha1"
)

// commonSamples are values of fields of all kinds, by the end of their paths.
var commonSamples = map[string]string{
	"retryOn": `["5xx"]`, "port.protocol": `[HTTP]`, "bind": `[127.0.0.1]`, "cipherSuites[]": `[ECDHE-RSA-AES128-GCM-SHA256]`, "ecdhCurves[]": `[X25519]`,
	"distribute[].to": `[{r/z/*: 100}]`, "outlierDetectionHttpErrorCodes[]": `[503]`, "failover[].from": `[r1]`, "failover[].to": `[r2]`, "tunnel.protocol": `[CONNECT, POST]`,
	"tunnel.targetPort": `[443]`, "tunnel.targetHost": `[b.example.com]`, "defaultEndpoint": `["127.0.0.1:8080", "unix:///run/a"]`,
	"targetRef.group": `[gateway.networking.k8s.io]`, "targetRef.kind": `[Gateway]`, "targetRef.name": `[x]`, "targetRef.namespace": `[b, other]`,
	"targetRefs[].group": `[gateway.networking.k8s.io]`, "targetRefs[].kind": `[Gateway]`, "targetRefs[].name": `[x]`, "targetRefs[].namespace": `[b, other]`,
	"subjectAltNames[]": `[spiffe://a]`, "verifyCertificateSpki[]": `[1cXI4JWFTZpoVxROUXNM2pGmA0l6Gzk2yEqdrS4Eu1Y=]`,
	"verifyCertificateHash[]": `["1111111111111111111111111111111111111111111111111111111111111111"]`,
	"tracing.customTags":      `[{k: {literal: {value: v}}}]`, "tracing[].customTags": `[{k: {literal: {value: v}}}]`,
}

const (
	gatewayTarget = `{group: gateway.networking.k8s.io, kind: Gateway, name: a}`
	jwtRule       = `{issuer: a, jwksUri: "https://example.com/keys"}`
)

// commonBeside are fields that messages of all kinds need, by the end of the messages' paths.
var commonBeside = map[string]string{
	"retries": `{attempts: 3}`, "defaultHttpRetryPolicy": `{attempts: 3}`,
	"httpCookie": `{name: c}`, "consistentHash.ringHash beside": `{httpHeaderName: h}`, "consistentHash.maglev beside": `{httpHeaderName: h}`, "consistentHash.minimumRingSize beside": `{httpHeaderName: h}`, "loadBalancer.warmup": `{duration: 60s}`,
	"http2KeepAlive": `{interval: 30s, timeout: 5s}`, "outlierDetection": `{splitExternalLocalOriginErrors: true}`,
	"tunnel": `{targetHost: a.example.com, targetPort: 80}`, "portLevelSettings[]": `{port: {number: 9001}, connectionPool: {tcp: {maxConnections: 1}}}`,
	"distribute[]": `{from: "r/z/*", to: {"r/z/*": 100}}`, "failover[]": `{from: r1, to: r2}`,
	"subsets[]": `{name: v1, labels: {version: v1}}`, "targetRef": gatewayTarget, "targetRefs[]": gatewayTarget,
	"cookie.attributes[]": `{name: a, value: b}`, "httpCookie.attributes[]": `{name: a, value: b}`,
}

const (
	httpsServer = `{selector: {a: b}, servers: [{port: {number: 443, name: https, protocol: HTTPS}, hosts: [a.example.com], tls: {mode: MUTUAL, serverCertificate: /a, privateKey: /b, caCertificates: /c}}]}`
	plainTLS    = `{selector: {a: b}, servers: [{port: {number: 443, name: https, protocol: HTTPS}, hosts: [a.example.com], tls: {mode: SIMPLE}}]}`
	tlsServer   = `{selector: {a: b}, servers: [{port: {number: 443, name: tls, protocol: TLS}, hosts: [a.example.com], tls: {mode: SIMPLE}}]}`
	fromSecret  = `{selector: {a: b}, servers: [{port: {number: 443, name: https, protocol: HTTPS}, hosts: [a.example.com], tls: {mode: MUTUAL, credentialName: a}}]}`
)

var fieldKinds = []fieldKind{
	{title: "VirtualService", apiVersion: "networking.istio.io/v1", kind: "VirtualService", message: &networking.VirtualService{},
		base: `{hosts: [a], http: [{route: [{destination: {host: a}}]}]}`,
		bases: map[string]string{
			"http[].redirect":                     `{hosts: [a], http: [{redirect: {uri: /x}}]}`,
			"http[].redirect.derivePort":          `{hosts: [a], http: [{redirect: {uri: /x, scheme: http}}]}`,
			"http[].redirect.prefixRewrite":       `{hosts: [a], http: [{match: [{uri: {prefix: /a}}], redirect: {}}]}`,
			"http[].directResponse":               `{hosts: [a], http: [{directResponse: {status: 200}}]}`,
			"http[].match[].ignoreUriCase":        `{hosts: [a], http: [{match: [{uri: {prefix: /a}}], route: [{destination: {host: a}}]}]}`,
			"http[].route[].weight":               `{hosts: [a], http: [{route: [{destination: {host: a}}, {destination: {host: m}, weight: 50}]}]}`,
			"tls[].route[].weight":                `{hosts: [a.example.com], tls: [{match: [{port: 443, sniHosts: [a.example.com]}], route: [{destination: {host: a}}, {destination: {host: m}, weight: 50}]}]}`,
			"tcp[].route[].weight":                `{hosts: [a], tcp: [{match: [{port: 9000}], route: [{destination: {host: a}}, {destination: {host: m}, weight: 50}]}]}`,
			"http[].delegate":                     `{hosts: [a], http: [{delegate: {name: d}}]}`,
			"http[].mirrorPercent":                `{hosts: [a], http: [{mirror: {host: m}, route: [{destination: {host: a}}]}]}`,
			"http[].mirrorPercentage":             `{hosts: [a], http: [{mirror: {host: m}, route: [{destination: {host: a}}]}]}`,
			"http[].fault.delay.percent":          `{hosts: [a], http: [{fault: {delay: {fixedDelay: 1s}}, route: [{destination: {host: a}}]}]}`,
			"http[].fault.delay.exponentialDelay": `{hosts: [a], http: [{fault: {delay: {percentage: {value: 50}}}, route: [{destination: {host: a}}]}]}`,
			"http[].fault.abort.http2Error":       `{hosts: [a], http: [{fault: {abort: {percentage: {value: 50}}}, route: [{destination: {host: a}}]}]}`,
			"http[].fault.abort.grpcStatus":       `{hosts: [a], http: [{fault: {abort: {percentage: {value: 50}}}, route: [{destination: {host: a}}]}]}`,
			"tls":                                 `{hosts: [a.example.com], tls: [{match: [{port: 443, sniHosts: [a.example.com]}], route: [{destination: {host: a}}]}]}`,
			"tls[]":                               `{hosts: [a.example.com], tls: [{match: [{port: 443, sniHosts: [a.example.com]}], route: [{destination: {host: a}}]}]}`,
			"tcp[]":                               `{hosts: [a], tcp: [{match: [{port: 9000}], route: [{destination: {host: m}}]}]}`,
		},
		beside: map[string]string{
			"uriRegexRewrite": `{match: a, rewrite: b}`, "fault.delay": `{fixedDelay: 1s, percentage: {value: 50}}`,
			"fault.abort": `{httpStatus: 500, percentage: {value: 50}}`, "http[].mirror": `{host: m}`, "mirrors[]": `{destination: {host: m}}`,
			"mirrors[].destination": `{host: m}`,
		},
		samples: map[string]string{"abort.httpStatus": `[503]`, "grpcStatus": `[UNAVAILABLE]`, "allowMethods[]": `[GET]`, "body.bytes": `[YQ==]`,
			"sniHosts[]": `[a.example.com]`, "destinationSubnets[]": `[10.0.0.0/8]`, "derivePort": `[FROM_PROTOCOL_DEFAULT, FROM_REQUEST_PORT]`,
			"directResponse.status": `[404]`, "redirectCode": `[302]`, "redirect.scheme": `[http, https]`, "delegate.name": `[d]`}},
	{title: "DestinationRule", apiVersion: "networking.istio.io/v1", kind: "DestinationRule", message: &networking.DestinationRule{},
		base: `{host: a, workloadSelector: {matchLabels: {a: b}}}`,
		beside: map[string]string{"tls": `{mode: MUTUAL, clientCertificate: /a, privateKey: /b, caCertificates: /c}`,
			"loadBalancer beside": `{outlierDetection: {}}`, "tls.insecureSkipVerify beside": noFiles("SIMPLE"), "tls.credentialName beside": noFiles("MUTUAL")},
		bases: destinationBases(),
	},
	{title: "Gateway", apiVersion: "networking.istio.io/v1", kind: "Gateway", message: &networking.Gateway{},
		base: `{selector: {a: b}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ["*"]}]}`,
		bases: map[string]string{"servers[].name": httpsServer, "servers[].tls": httpsServer, "servers[].tls.credentialName": fromSecret, "servers[].tls.credentialNames[]": plainTLS, "servers[].tls.mode": httpsServer + "\n---\n" + plainTLS + "\n---\n" + tlsServer,
			"servers[].tls.caCertCredentialName": fromSecret, "servers[].tls.httpsRedirect": `{selector: {a: b}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ["*"]}]}`,
			"servers[].tls.tlsCertificates[]": `{selector: {a: b}, servers: [{port: {number: 443, name: https, protocol: HTTPS}, hosts: [a.example.com], tls: {mode: MUTUAL, caCertificates: /c, tlsCertificates: [{serverCertificate: /a, privateKey: /b}]}}]}`},
		samples: map[string]string{"port.protocol": `[HTTP, HTTPS, GRPC, HTTP2, MONGO, TCP, TLS]`, "servers[].hosts[]": `[a.example.com]`}},
	{title: "ServiceEntry", apiVersion: "networking.istio.io/v1", kind: "ServiceEntry", message: &networking.ServiceEntry{},
		base: `{hosts: [a.example.com], ports: [{number: 80, name: http, protocol: HTTP}], resolution: STATIC, endpoints: [{address: 10.0.0.1}]}`,
		bases: map[string]string{"endpoints[].serviceAccount": insideEntry, "subjectAltNames[]": insideEntry, "workloadSelector": `{hosts: [a.example.com], ports: [{number: 80, name: http, protocol: HTTP}], resolution: STATIC}`,
			"resolution": `{hosts: [a.example.com], ports: [{number: 80, name: http, protocol: HTTP}]}` + "\n---\n" + `{hosts: ["*.example.com"], ports: [{number: 80, name: http, protocol: HTTP}]}` +
				"\n---\n" + `{hosts: [a.example.com], ports: [{number: 80, name: http, protocol: HTTP}], endpoints: [{address: 10.0.0.1}]}`},
		samples: map[string]string{"addresses[]": `[10.1.0.1]`, "ports[].protocol": `[TCP]`, "endpoints[].address": `[10.0.0.2]`, "endpoints[].ports": `[{http: 8080}]`}},
	{title: "WorkloadEntry", apiVersion: "networking.istio.io/v1", kind: "WorkloadEntry", message: &networking.WorkloadEntry{},
		base:    `{address: 10.0.0.1, labels: {a: b, security.istio.io/tlsMode: istio}}`,
		samples: map[string]string{"labels": `[{a: b, version: v1}]`, "ports": `[{http: 8081}]`}},
	{title: "Sidecar", apiVersion: "networking.istio.io/v1", kind: "Sidecar", message: &networking.Sidecar{},
		base: `{workloadSelector: {labels: {a: b}}, egress: [{hosts: ["*/*"]}]}`,
		bases: map[string]string{"workloadSelector.labels": `{egress: [{hosts: ["other/*"]}]}`, "ingress[].tls.credentialName": sidecarSecret, "ingress[].tls.credentialNames[]": strings.Replace(sidecarSecret, "mode: MUTUAL, credentialName: a", "mode: SIMPLE", 1), "ingress[].tls.caCertCredentialName": sidecarSecret,
			"ingress[].tls.tlsCertificates[]": `{workloadSelector: {labels: {a: b}}, ingress: [{port: {number: 8443, name: https, protocol: HTTPS}, defaultEndpoint: "127.0.0.1:80", tls: {mode: SIMPLE, tlsCertificates: [{serverCertificate: /a, privateKey: /b}]}}]}`},
		beside: map[string]string{"ingress[]": `{port: {number: 8443, name: https, protocol: HTTPS}, defaultEndpoint: "127.0.0.1:80"}`, "egress[]": `{hosts: ["./*"]}`, "ingress[].connectionPool beside": `{port: {number: 8080, name: http, protocol: HTTP2}}`,
			"egress[].port": `{number: 80, name: http, protocol: HTTP}`, "outboundTrafficPolicy": `{mode: ALLOW_ANY}`, "egressProxy": `{host: b, port: {number: 80}}`,
			"ingress[].tls": `{mode: MUTUAL, serverCertificate: /a, privateKey: /b, caCertificates: /c}`},
		samples: map[string]string{"egress[].hosts[]": `["other/*"]`, "egress[].port.protocol": `[TCP]`, "egress[].bind": `[127.0.0.5]`, "workloadSelector.labels": `[{a: b}]`, "ingress[].port.protocol": `[HTTPS]`}},
	{title: "ProxyConfig", apiVersion: "networking.istio.io/v1beta1", kind: "ProxyConfig", message: &proxyconfig.ProxyConfig{}, base: `{}`},
	{title: "EnvoyFilter", apiVersion: "networking.istio.io/v1alpha3", kind: "EnvoyFilter", message: &networking.EnvoyFilter{},
		base: `{configPatches: [{applyTo: CLUSTER, patch: {operation: MERGE, value: {connect_timeout: 1s}}}]}`,
		bases: map[string]string{
			"configPatches[].applyTo": `{configPatches: [{patch: {operation: MERGE, value: {name: a}}}]}` + "\n---\n" +
				`{configPatches: [{patch: {operation: MERGE, value: {stats_flush_interval: 2s}}}]}` + "\n---\n" +
				`{configPatches: [{match: {listener: {listenerFilter: a}}, patch: {operation: MERGE, value: {name: a}}}]}` + "\n---\n" +
				`{configPatches: [{patch: {operation: ADD, value: {name: a, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}}}]}`,
			"configPatches[].match.listener":                              `{configPatches: [{applyTo: NETWORK_FILTER, patch: {operation: MERGE, value: {name: a}}}]}`,
			"configPatches[].match.listener.filterChain.filter.subFilter": `{configPatches: [{applyTo: HTTP_FILTER, match: {listener: {filterChain: {filter: {name: envoy.filters.network.http_connection_manager}}}}, patch: {operation: MERGE, value: {name: a}}}]}`,
			"configPatches[].match.listener.listenerFilter":               `{configPatches: [{applyTo: LISTENER_FILTER, patch: {operation: REMOVE}}]}`,
			"configPatches[].match.routeConfiguration":                    `{configPatches: [{applyTo: HTTP_ROUTE, patch: {operation: MERGE, value: {name: a}}}]}`,
			"configPatches[].patch.filterClass":                           `{configPatches: [{applyTo: HTTP_FILTER, patch: {operation: ADD, value: {name: envoy.filters.http.lua}}}]}`,
			"configPatches[].patch.operation":                             `{configPatches: [{applyTo: HTTP_FILTER, match: {listener: {filterChain: {filter: {name: envoy.filters.network.http_connection_manager, subFilter: {name: envoy.filters.http.router}}}}}, patch: {value: {name: envoy.filters.http.lua}}}]}`,
		},
		samples: map[string]string{"patch.value": `[{connect_timeout: 2s}]`, "listener.listenerFilter": `[envoy.filters.listener.tls_inspector]`}},
	{title: "PeerAuthentication", apiVersion: "security.istio.io/v1", kind: "PeerAuthentication", message: &security.PeerAuthentication{}, base: `{selector: {matchLabels: {a: b}}}`,
		bases:   map[string]string{"selector": `{mtls: {mode: STRICT}}`},
		samples: map[string]string{"portLevelMtls": `[{8080: {mode: DISABLE}}]`, "matchLabels": `[{a: c}]`}},
	{title: "RequestAuthentication", apiVersion: "security.istio.io/v1", kind: "RequestAuthentication", message: &security.RequestAuthentication{},
		base:    `{jwtRules: [` + jwtRule + `]}`,
		bases:   map[string]string{"jwtRules[].jwks": `{jwtRules: [{issuer: a}]}`},
		beside:  map[string]string{"fromHeaders[]": `{name: h}`, "outputClaimToHeaders[]": `{header: h, claim: c}`},
		samples: map[string]string{"jwksUri": `["https://example.com/other"]`, "jwks": `['{"keys":[{"kty":"RSA","n":"AQAB","e":"AQAB"}]}']`}},
	{title: "AuthorizationPolicy", apiVersion: "security.istio.io/v1", kind: "AuthorizationPolicy", message: &security.AuthorizationPolicy{}, base: `{}`,
		bases:  map[string]string{"provider": `{action: CUSTOM, rules: [{}]}`, "action": `{rules: [{to: [{operation: {ports: ["80"]}}]}]}` + "\n---\n" + `{rules: [{}], provider: {name: a}}`},
		beside: map[string]string{"when[]": `{key: "request.headers[a]", values: [b]}`},
		samples: map[string]string{"ipBlocks[]": `[10.0.0.0/8]`, "notIpBlocks[]": `[10.0.0.0/8]`, "remoteIpBlocks[]": `[10.0.0.0/8]`, "notRemoteIpBlocks[]": `[10.0.0.0/8]`,
			"ports[]": `["80"]`, "notPorts[]": `["80"]`, "methods[]": `[GET]`, "notMethods[]": `[GET]`, "paths[]": `[/a]`, "notPaths[]": `[/a]`,
			"when[].key": `[source.namespace]`, "when[].values[]": `[c]`, "when[].notValues[]": `[c]`}},
	{title: "Telemetry", apiVersion: "telemetry.istio.io/v1", kind: "Telemetry", message: &telemetry.Telemetry{}, base: `{}`,
		bases: map[string]string{
			"selector": `{accessLogging: [{disabled: true}]}`, "targetRef": `{accessLogging: [{disabled: true}]}`, "targetRefs[]": `{accessLogging: [{disabled: true}]}`,
			"metrics[].overrides[].match": `{metrics: [{overrides: [{tagOverrides: {k: {value: request.host}}}]}]}`, "accessLogging[].match": `{accessLogging: [{providers: [{name: log}]}]}`, "accessLogging[].filter": `{accessLogging: [{providers: [{name: log}]}]}`,
			"tracing[].match": `{tracing: [{disableSpanReporting: true}]}`,
		},
		samples: map[string]string{"tagOverrides": `[{k: {value: request.host}}]`, "filter.expression": `["response.code >= 500"]`}},
	{title: "WasmPlugin", apiVersion: "extensions.istio.io/v1alpha1", kind: "WasmPlugin", message: &extensions.WasmPlugin{},
		base:    `{url: "oci://example.com/a:1"}`,
		beside:  map[string]string{"env[]": `{name: A, value: b}`, "env[].valueFrom beside": `{value: null}`},
		samples: map[string]string{"url": `["oci://example.com/b:1"]`, "sha256": `["1111111111111111111111111111111111111111111111111111111111111111"]`}},
	{title: "MeshConfig", kind: "ConfigMap", message: &mesh.MeshConfig{}, base: `{defaultConfig: {}}`, bases: meshBases(),
		beside: map[string]string{"extensionProviders[].*": `{}`, "matchExpressions[]": `{key: a, operator: In, values: [b]}`,
			"tls": `{mode: MUTUAL, clientCertificate: /a, privateKey: /b, caCertificates: /c}`, "headers[]": `{name: h, value: v}`, "initialMetadata[]": `{name: h, value: v}`,
			"headers[].envName beside": `{value: null}`, "initialMetadata[].envName beside": `{value: null}`, "includeRequestBodyInCheck": `{maxRequestBytes: 9}`,
			"defaultTrafficPolicy": `{outlierDetection: {}}`},
		samples: map[string]string{"operator": `[In, NotIn]`, "http2InitialStreamWindowSize": `[65535]`, "http2InitialConnectionWindowSize": `[65535]`, "pathPrefix": `[/a]`, "statusOnError": `["503"]`, "zipkin.path": `[/a]`, "http.path": `[/a]`, "zipkin.address": `["a.b:81"]`, "defaultProviders.tracing[]": `[a]`, "defaultProviders.metrics[]": `[a]`, "defaultProviders.accessLogging[]": `[a]`}},
}

const insideEntry = `{hosts: [a.example.com], location: MESH_INTERNAL, ports: [{number: 80, name: http, protocol: HTTP}], resolution: STATIC, endpoints: [{address: 10.0.0.1, labels: {security.istio.io/tlsMode: istio}}]}`

const sidecarSecret = `{workloadSelector: {labels: {a: b}}, ingress: [{port: {number: 8443, name: https, protocol: HTTPS}, defaultEndpoint: "127.0.0.1:80", tls: {mode: MUTUAL, credentialName: a}}]}`

// noFiles is a client's TLS without certificates in files.
func noFiles(mode string) string {
	return `{mode: ` + mode + `, clientCertificate: null, privateKey: null, caCertificates: null}`
}

// destinationBases are specs for fields that rule out others.
func destinationBases() map[string]string {
	out := map[string]string{
		"exportTo[]": `{host: a}`,
		"trafficPolicy.portLevelSettings[].connectionPool.http.h2UpgradePolicy":           `{host: a, trafficPolicy: {portLevelSettings: [{port: {number: 80}}]}}`,
		"subsets[].trafficPolicy.portLevelSettings[].connectionPool.http.h2UpgradePolicy": `{host: a, subsets: [{name: v1, trafficPolicy: {portLevelSettings: [{port: {number: 80}}]}}]}`,
	}
	const rule = `{host: a, workloadSelector: {matchLabels: {a: b}}, %s}`
	const files = `tls: {mode: MUTUAL, clientCertificate: /a, privateKey: /b}`
	for path, where := range map[string]string{
		"trafficPolicy.tls.mode":                               `trafficPolicy: {%s}`,
		"trafficPolicy.portLevelSettings[].tls.mode":           `trafficPolicy: {portLevelSettings: [{port: {number: 80}, %s}]}`,
		"subsets[].trafficPolicy.tls.mode":                     `subsets: [{name: v1, labels: {a: b}, trafficPolicy: {%s}}]`,
		"subsets[].trafficPolicy.portLevelSettings[].tls.mode": `subsets: [{name: v1, labels: {a: b}, trafficPolicy: {portLevelSettings: [{port: {number: 80}, %s}]}}]`,
	} {
		out[path] = fmt.Sprintf(rule, fmt.Sprintf(where, files)) + "\n---\n" + fmt.Sprintf(rule, fmt.Sprintf(where, `tls: {mode: SIMPLE}`))
	}
	return out
}

// meshBases have the fields that each kind of provider needs.
func meshBases() map[string]string {
	out := map[string]string{
		"extensionProviders[].envoyFileAccessLog": `{extensionProviders: [{name: a, envoyFileAccessLog: {}}]}`,
		"extensionProviders[].prometheus":         `{extensionProviders: [{name: a}]}`,
		"extensionProviders[].name":               `{extensionProviders: [{prometheus: {}}]}`,
		"enableTracing":                           `{defaultConfig: {tracing: {zipkin: {address: "a.b:80"}}}}`,
		"defaultConfig.tracing":                   `{enableTracing: true, defaultConfig: {tracing: {zipkin: {address: "a.b:80"}}}}`,
		"defaultConfig.tracing.lightstep":         `{}`,
		"defaultConfig.tracing.datadog":           `{}`,
		"defaultConfig.tracing.stackdriver":       `{}`,
		"defaultConfig.tracing.openCensusAgent":   `{}`,
		"defaultProviders.tracing[]":              `{extensionProviders: [{name: a, zipkin: {service: a.b, port: 80}}]}`,
		"defaultProviders.metrics[]":              `{extensionProviders: [{name: a, prometheus: {}}]}`,
		"defaultProviders.accessLogging[]":        `{extensionProviders: [{name: a, envoyFileAccessLog: {}}]}`,
	}
	for _, provider := range []string{"envoyExtAuthzHttp", "envoyExtAuthzGrpc", "zipkin", "opentelemetry", "envoyHttpAls", "envoyTcpAls", "envoyOtelAls",
		"datadog", "skywalking", "lightstep", "opencensus", "stackdriver", "sds"} {
		out["extensionProviders[]."+provider] = fmt.Sprintf(`{extensionProviders: [{name: a, %s: {service: a.b, port: 80}}]}`, provider)
	}
	return out
}
