package translate

import (
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
)

// caSuffix makes a secret's name that of the CA certificates in it.
const caSuffix = "-cacert"

// The secrets that the agent serves from the bootstrap's cluster "sds-grpc". Names are Istio's.
var (
	workloadCertificate = &tlsv3.SdsSecretConfig{Name: "default", SdsConfig: agentSource}
	meshRoots           = &tlsv3.SdsSecretConfig{Name: "ROOTCA", SdsConfig: agentSource}
)

var agentSource = &corev3.ConfigSource{
	ConfigSourceSpecifier: &corev3.ConfigSource_ApiConfigSource{ApiConfigSource: &corev3.ApiConfigSource{
		ApiType:                   corev3.ApiConfigSource_GRPC,
		TransportApiVersion:       corev3.ApiVersion_V3,
		SetNodeOnFirstMessageOnly: true,
		GrpcServices: []*corev3.GrpcService{{
			TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{
				EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{ClusterName: "sds-grpc"},
			},
		}},
	}},
	InitialFetchTimeout: noDuration,
	ResourceApiVersion:  corev3.ApiVersion_V3,
}

// credential is a Kubernetes secret, served by the control plane. Waiting for it is
// bounded: a secret that does not exist must hold up nothing else.
func credential(name, suffix string) *tlsv3.SdsSecretConfig {
	if !strings.Contains(name, "://") {
		name = "kubernetes://" + name
	}
	return &tlsv3.SdsSecretConfig{Name: name + suffix, SdsConfig: adsSourceBounded}
}
