package istioenv

import "slices"

// Reasons that several variables of the agent share.
const (
	noProxyless = "proxies without Envoy are not supported"
	fixedWasm   = "modules are fetched and kept by fixed rules"
	noPlatform  = "the agent does not ask the cloud where it runs; --locality and labels have the locality"
	oneSource   = "--ca-address, --mounted-certs and --workload-api choose the source of certificates"
	meshCerts   = "the mesh's certificates come from the agent, by SDS"
	fixedNode   = "the agent writes it itself"
)

// Agent are the variables of Istio's agent without effect.
var Agent = []Variable{
	{"CA_PROVIDER", "citadel", oneSource},
	{"CA_ROOT_CA", "", "--xds-root-cert (XDS_ROOT_CA) verifies the control plane and the CA"},
	{"CREDENTIAL_FETCHER_TYPE", "jwt", "--token-file has the token"},
	{"CREDENTIAL_IDENTITY_PROVIDER", Any, "--token-file has the token"},
	{"JWT_POLICY", "third-party-jwt", "--token-file has the token"},
	{"PROV_CERT", "", "use --mounted-certs"},
	{"XDS_AUTH_PROVIDER", "", "--token-file has the token"},
	{"TOKEN_AUDIENCES", "istio-ca", "the token in --token-file has its audience"},
	{"PKCS8_KEY", Any, "keys have the form PKCS #8"},
	{"ECC_SIGNATURE_ALGORITHM", "ecdsa", "keys are ECDSA keys, unless WORKLOAD_RSA_KEY_SIZE is set"},
	{"ECC_CURVE", "p256", "keys are on the curve P-256"},
	{"SECRET_GRACE_PERIOD_RATIO_JITTER", Any, "a fixed jitter spreads renewals"},
	{"FILE_DEBOUNCE_DURATION", Any, "files are read again at a fixed interval"},

	{"INBOUND_TPROXY_MARK", "1337", "rules of TPROXY have marks of their own"},
	{"ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR", "127.0.0.1/32", "connections to loopback addresses bypass Envoy, unless the included ranges name them"},
	{"DISABLE_ENVOY", "false", noProxyless},
	{"GRPC_XDS_BOOTSTRAP", Any, noProxyless},
	{"PROXY_CONFIG_XDS_AGENT", "false", "--proxy-config and annotations are read at the start"},
	{"ISTIO_BOOTSTRAP", "", "patch the bootstrap with an EnvoyFilter"},
	{"ISTIO_BOOTSTRAP_OVERRIDE", "", "patch the bootstrap with an EnvoyFilter"},
	{"ISTIO_ENVOY_ENABLE_CORE_DUMP", "false", "core dumps are what the container allows"},
	{"ENVOY_SKIP_DEPRECATED_LOGS", "true", "deprecated fields are not logged; use --proxy-component-log-level misc:warning"},
	{"HTTP_STRIP_FRAGMENT_FROM_PATH_UNSAFE_IF_DISABLED", "true", "fragments are always removed from paths"},
	{"PEER_METADATA_DISCOVERY", "false", "workloads state who they are in a header that Envoy removes"},

	{"DNS_FORWARD_PARALLEL", "false", "servers of resolv.conf are asked one after the other"},
	{"DNS_FORWARD_TIMEOUT", "2s", "a server of resolv.conf has 2 seconds to answer"},
	{"DNS_PROXY_ADDR", "localhost:15053", "the DNS proxy listens on port 15053"},
	{"WASM_HTTP_REQUEST_MAX_RETRIES", Any, fixedWasm},
	{"WASM_HTTP_REQUEST_TIMEOUT", Any, fixedWasm},
	{"WASM_INSECURE_REGISTRIES", "", "registries are always verified"},
	{"WASM_MODULE_EXPIRY", Any, fixedWasm},
	{"WASM_PURGE_INTERVAL", Any, fixedWasm},

	{"ISTIO_OUTBOUND_OWNER_GROUPS", "*", "connections of all groups are intercepted, except Envoy's"},
	{"ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE", "", "connections of all groups are intercepted, except Envoy's"},

	{"ENABLE_PROBE_KEEPALIVE_CONNECTIONS", "false", "each probe has a connection, as those of the kubelet"},
	{"ISTIO_ENABLE_HTTP2_PROBING", "true", "probes with TLS may use HTTP/2, as those of the kubelet"},
	{"ENVOY_SECURE_METRICS_PORT", "0", "metrics are served in plain text; a PeerAuthentication cannot protect them"},
	{"ENVOY_SECURE_MERGED_METRICS_PORT", "0", "metrics are served in plain text; a PeerAuthentication cannot protect them"},
	{"PILOT_AGENT_MERGE_ENVOY_STATS", "true", "merged metrics have those of Envoy"},
	{"METRICS_LOCALHOST_ACCESS_ONLY", "false", "other hosts may read metrics; restrict the ports with a NetworkPolicy"},

	{"CLOUD_PLATFORM", "none", noPlatform},
	{"GCP_METADATA", Any, noPlatform},
	{"GCP_QUOTA_PROJECT", Any, noPlatform},
	{"GCP_ZONE", Any, noPlatform},
	{"PLATFORM", Any, noPlatform},
	{"GRPC_KEEPALIVE_INTERVAL", Any, "a fixed interval finds a silent control plane"},
	{"GRPC_KEEPALIVE_TIMEOUT", Any, "a fixed interval finds a silent control plane"},
	{"HOST_IP", Any, "nothing depends on the host's address"},
	{"COMPLIANCE_POLICY", "", "the agent does not enforce the policy; restrict TLS by meshMTLS and tlsDefaults of MeshConfig"},
	{MetadataPrefix + "CERT_SIGNER", "", "signers of Kubernetes are not supported"},
	{MetadataPrefix + "ENABLE_DNS_SERVER", "false", "use ISTIO_META_DNS_CAPTURE"},
}

// MetadataPrefix begins the variables that set metadata of the node.
const MetadataPrefix = "ISTIO_META_"

// AgentAll are all variables without effect of the agent and of the node's metadata.
func AgentAll() []Variable {
	out := slices.Clone(Agent)
	for _, v := range Metadata {
		out = append(out, Variable{MetadataPrefix + v.Name, v.Holds, v.Why})
	}
	return out
}

// Metadata are fields of the node's metadata that istiod reads, and that have no effect. Users set X with ISTIO_META_X.
var Metadata = []Variable{
	{"APP_CONTAINERS", Any, "only EnvoyFilters and Wasm modules read it"},
	{"AUTO_REGISTER_GROUP", "", noEnrollment},
	{"WORKLOAD_ENTRY", "", "WorkloadEntries are found by the address of the workload"},
	{"BASE", "", meshCerts},
	{"TLS_CLIENT_CERT_CHAIN", "", meshCerts},
	{"TLS_CLIENT_KEY", "", meshCerts},
	{"TLS_CLIENT_ROOT_CERT", "", meshCerts},
	{"TLS_SERVER_CERT_CHAIN", "", meshCerts},
	{"TLS_SERVER_KEY", "", meshCerts},
	{"TLS_SERVER_ROOT_CERT", "", meshCerts},
	{"CLOUDRUN_ADDR", "", noPlatform},
	{"PLATFORM_METADATA", Any, noPlatform},
	{"DISABLE_HBONE_SEND", "true", noAmbient},
	{"ENABLE_HBONE", "false", noAmbient},
	{"DNS_PROXY_ADDR", "localhost:15053", "the DNS proxy listens on port 15053"},
	{"ENABLE_SELF_DISCOVERY", "false", "zoneAwareLbSetting has no effect; use localityLbSetting"},
	{"ENVOY_SECURE_METRICS_PORT", "0", "metrics are served in plain text"},
	{"ENVOY_SECURE_MERGED_METRICS_PORT", "0", "metrics are served in plain text"},
	{"ENVOY_SKIP_DEPRECATED_LOGS", "true", "deprecated fields are not logged"},
	{"ENVOY_STATUS_PORT", "15021", "--health-port (ENVOY_STATUS_PORT) sets the port"},
	{"ENVOY_PROMETHEUS_PORT", "15090", "--prometheus-port (ENVOY_PROMETHEUS_PORT) sets the port"},
	{"EXIT_ON_ZERO_ACTIVE_CONNECTIONS", Any, "the agent's variable EXIT_ON_ZERO_ACTIVE_CONNECTIONS decides"},
	{"GENERATOR", "", "all proxies get the same types of resources"},
	{"HTTP_PROXY_PORT", "", "use an egress listener of a Sidecar"},
	{"IDLE_TIMEOUT", "", "use idleTimeout of a DestinationRule's or Sidecar's connectionPool"},
	{"METADATA_DISCOVERY", "false", "workloads state who they are in a header that Envoy removes"},
	{"OUTBOUND_LISTENER_EXACT_BALANCE", "false", "outbound connections are accepted by any worker thread"},
	{"REQUESTED_NETWORK_VIEW", "", "the mesh has one network"},
	{"STATIC_LABELS", "", "use ISTIO_METAJSON_LABELS"},
	{"STS_PORT", "", "the agent has no token exchange (STS) server"},
	{"WORKLOAD_IDENTITY_SOCKET_FILE", Any, fixedNode},
	{"ISTIO_PROXY_SHA", Any, fixedNode},
	{"ISTIO_REVISION", Any, "--xds-address chooses the control plane"},
	{"OUTLIER_LOG_PATH", "", "patch the bootstrap with an EnvoyFilter"},
	{"PILOT_SAN", Any, fixedNode},
}
