package model

// ProxyConfigFields are the fields of Istio's ProxyConfig, as the mesh's defaultConfig and the annotation
// proxy.istio.io/config have it, that have an effect; in their JSON spelling, sorted.
var ProxyConfigFields = []string{
	"concurrency", "discoveryAddress", "drainDuration", "extraStatTags", "fileFlushInterval", "fileFlushMinSizeKb", "gatewayTopology",
	"holdApplicationUntilProxyStarts",
	"image", "interceptionMode", "proxyAdminPort", "proxyHeaders", "proxyMetadata", "proxyStatsMatcher", "runtimeValues", "serviceCluster",
	"statusPort", "terminationDrainDuration", "tracing",
}

// ProxyHeadersFields are likewise those of its proxyHeaders. That no peer outside of the mesh is told who calls
// (metadataExchangeHeaders) holds anyway.
var ProxyHeadersFields = []string{
	"attemptCount", "envoyDebugHeaders", "forwardedClientCert", "metadataExchangeHeaders", "preserveHttp1HeaderCase", "requestId", "server",
	"setCurrentClientCertDetails", "xForwardedHost", "xForwardedPort",
}
