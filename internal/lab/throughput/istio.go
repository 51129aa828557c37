package throughput

import (
	"encoding/base64"
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/moonsail/moonsail/internal/lab/pair"
)

// What Istio's default installation has in each sidecar and Moonsail's default has not, as far as stock Envoy can be
// configured so. The parts of Istio's build of Envoy (its filters of ALPN and of statistics) are left out, so that the
// comparison does not gain by a guess.

// Peer is what Istio would generate by default for the same Envoy.
func Peer() pair.Setup {
	return pair.Setup{
		Client: true, Server: true, MTLS: true, HTTP1: true, AnyWorker: true,
		Objects: []string{pair.AccessLog("text"), grpcStats, counted, traced, atServers, exchange()}, // the log is the first
	}
}

// withoutLog is Istio's default profile: the log is that of the report that is repeated here.
func withoutLog() pair.Setup {
	s := Peer()
	s.Objects = s.Objects[1:]
	return s
}

// grpcStats is a filter of Istio in each sidecar.
var grpcStats = pair.BeforeRouter("grpc-stats", "envoy.filters.http.grpc_stats", `        typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.grpc_stats.v3.FilterConfig, emit_filter_state: true, stats_for_all_methods: false}`)

// counted makes routers count clusters' responses by code, as Istio's do. No statistics of that are kept by default, in
// Istio neither, but they are looked up.
var counted = pair.Patches("counted", `  - applyTo: HTTP_FILTER
    match: {listener: {filterChain: {filter: {name: envoy.filters.network.http_connection_manager, subFilter: {name: envoy.filters.http.router}}}}}
    patch:
      operation: MERGE
      value:
        typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router, dynamic_stats: true}
`)

// traced is enableTracing, which is on unless the mesh's configuration turns it off, and samples 1 %. Without a tracer
// nothing is sent, but each request needs a decision and the tags of its span.
var traced = pair.Patches("traced", `  - applyTo: NETWORK_FILTER
    match: {listener: {filterChain: {filter: {name: envoy.filters.network.http_connection_manager}}}}
    patch:
      operation: MERGE
      value:
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          tracing:
            client_sampling: {value: 100}
            overall_sampling: {value: 100}
            random_sampling: {value: 1}
            custom_tags:
            - {tag: istio.authorization.dry_run.allow_policy.name, metadata: {kind: {request: {}}, metadata_key: {key: envoy.filters.http.rbac, path: [{key: istio_dry_run_allow_shadow_effective_policy_id}]}}}
            - {tag: istio.authorization.dry_run.allow_policy.result, metadata: {kind: {request: {}}, metadata_key: {key: envoy.filters.http.rbac, path: [{key: istio_dry_run_allow_shadow_engine_result}]}}}
            - {tag: istio.authorization.dry_run.deny_policy.name, metadata: {kind: {request: {}}, metadata_key: {key: envoy.filters.http.rbac, path: [{key: istio_dry_run_deny_shadow_effective_policy_id}]}}}
            - {tag: istio.authorization.dry_run.deny_policy.result, metadata: {kind: {request: {}}, metadata_key: {key: envoy.filters.http.rbac, path: [{key: istio_dry_run_deny_shadow_engine_result}]}}}
            - {tag: istio.canonical_revision, literal: {value: latest}}
            - {tag: istio.canonical_service, literal: {value: server}}
            - {tag: istio.cluster_id, literal: {value: Kubernetes}}
            - {tag: istio.mesh_id, literal: {value: cluster.local}}
            - {tag: istio.namespace, literal: {value: $NAMESPACE}}
`)

// atServers adds the filters of faults and CORS to inbound listeners.
var atServers = pair.Patches("at-servers", inboundFilter("envoy.filters.http.fault", "envoy.extensions.filters.http.fault.v3.HTTPFault")+
	inboundFilter("envoy.filters.http.cors", "envoy.extensions.filters.http.cors.v3.Cors"))

func inboundFilter(name, message string) string {
	return fmt.Sprintf(`  - applyTo: HTTP_FILTER
    match: {context: SIDECAR_INBOUND, listener: {filterChain: {filter: {name: envoy.filters.network.http_connection_manager, subFilter: {name: envoy.filters.http.router}}}}}
    patch:
      operation: INSERT_BEFORE
      value: {name: %s, typed_config: {"@type": type.googleapis.com/%s}}
`, name, message)
}

// Sidecars of Istio exchange their identities in two headers of each request and response.
const (
	exchangedID   = "x-envoy-peer-metadata-id"
	exchangedPeer = "x-envoy-peer-metadata"
)

// exchange sends and removes these headers. Istio's filter also decodes them and stores the workload with each request,
// which is left out. Moonsail's header, which is shorter, stays.
func exchange() string {
	return pair.Patches("exchange", mutation("SIDECAR_OUTBOUND", "request_mutations", "response_mutations", "client")+
		mutation("SIDECAR_INBOUND", "response_mutations", "request_mutations", "server"))
}

// mutation adds a workload's headers at one side of a sidecar, and removes its peer's at the other.
func mutation(context, adds, removes, workload string) string {
	remove := func(name string) string { return "{remove: " + name + "}" }
	add := func(name, value string) string {
		return fmt.Sprintf("{append: {header: {key: %s, value: %q}, append_action: OVERWRITE_IF_EXISTS_OR_ADD}}", name, value)
	}
	return fmt.Sprintf(`  - applyTo: HTTP_FILTER
    match: {context: %s, listener: {filterChain: {filter: {name: envoy.filters.network.http_connection_manager, subFilter: {name: envoy.filters.http.router}}}}}
    patch:
      operation: INSERT_BEFORE
      value:
        name: exchange
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.http.header_mutation.v3.HeaderMutation
          mutations:
            %s: [%s, %s]
            %s: [%s, %s]
`, context, adds,
		add(exchangedID, "sidecar~10.0.0.1~"+workload+"-7d4b8c9f6d-x2x7z.$NAMESPACE~$NAMESPACE.svc.cluster.local"), add(exchangedPeer, peerMetadata(workload)),
		removes, remove(exchangedID), remove(exchangedPeer))
}

// peerMetadata is Istio's header for a workload of a Deployment, in its encoding.
func peerMetadata(workload string) string {
	text := func(v string) *structpb.Value { return structpb.NewStringValue(v) }
	labels := &structpb.Struct{Fields: map[string]*structpb.Value{
		"app": text(workload), "version": text("v1"),
		"service.istio.io/canonical-name": text(workload), "service.istio.io/canonical-revision": text("v1"),
	}}
	raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(&structpb.Struct{Fields: map[string]*structpb.Value{
		"CLUSTER_ID": text("Kubernetes"), "NAMESPACE": text("pair-0"), "NAME": text(workload + "-7d4b8c9f6d-x2x7z"),
		"OWNER":         text("kubernetes://apis/apps/v1/namespaces/pair-0/deployments/" + workload),
		"WORKLOAD_NAME": text(workload), "LABELS": structpb.NewStructValue(labels),
	}})
	if err != nil {
		panic(err) // these strings are valid
	}
	return strings.TrimRight(base64.StdEncoding.EncodeToString(raw), "=")
}
