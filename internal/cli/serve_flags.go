package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/controlplane"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/engine"
	"github.com/moonsail/moonsail/internal/terminal"
	"github.com/moonsail/moonsail/internal/xds/server"
)

var routeStrategies = []string{string(server.RoutesAuto), string(server.RoutesRDS), string(server.RoutesVHDS), string(server.RoutesScoped)}

// defaultConnectionAge is what Istio's charts give istiod (keepaliveMaxServerConnectionAge).
const defaultConnectionAge = 30 * time.Minute

var transports = []string{string(server.TransportGRPC), string(server.TransportHTTP2)}

func (f *serveFlags) addFlags(cmd *cobra.Command) {
	fs, o := cmd.Flags(), &f.options
	fs.StringVar(&o.ConfigDir, "config", "", "`DIR` with the mesh's configuration")
	f.kube.add(cmd)
	fs.DurationVar(&o.Heartbeat, "heartbeat", time.Second,
		"how often the API server's delay is measured, with a Lease in the root namespace; 0: never")
	fs.StringVar(&o.XDSPlaintextAddr, "xds-plaintext-addr", "",
		"`ADDR` of xDS without encryption or authentication: loopback only, or a network you trust (default: off)")
	f.addIdentityFlags(cmd)
	f.addPeerFlags(cmd)
	fs.StringVar(&o.HTTPAddr, "http-addr", defaultDebugAddress, "`ADDR` of metrics, debug pages and profiles; beyond loopback they need credentials; empty: off")
	f.addAccess(cmd)
	fs.BoolVar(&o.Status, "status", false,
		"say in the status of Istio objects what is wrong with them (condition Reconciled); off, as it costs the API server writes")
	f.addWebhookFlags(cmd)
	f.addXDSFlags(cmd)
	f.addMeshFlags(cmd)
	f.addMeasureFlags(cmd)
	f.logging.AddFlags(cmd)
	_ = cmd.MarkFlagDirname("config") // the only error is a flag that does not exist
}

func (f *serveFlags) addWebhookFlags(cmd *cobra.Command) {
	fs, w := cmd.Flags(), &f.options.Webhook
	fs.StringVar(&w.Addr, "webhook-addr", "",
		"`ADDR` of the validating webhook, for example :15017 (default: off)")
	fs.StringVar(&w.CertFile, "webhook-cert", "", "`FILE` with the webhook's certificate (default: one is made)")
	fs.StringVar(&w.KeyFile, "webhook-key", "", "`FILE` with that certificate's private key")
	fs.StringVar(&w.Config, "webhook-config", "",
		"`NAME` of the ValidatingWebhookConfiguration that is to trust a certificate which is made, for example moonsail-validator")
	f.inject.add(cmd)
}

// addXDSFlags adds those about how proxies are served.
func (f *serveFlags) addXDSFlags(cmd *cobra.Command) {
	fs, o := cmd.Flags(), &f.options
	fs.StringVar(&f.strategy, "route-strategy", string(server.RoutesAuto),
		fmt.Sprintf("how routes reach proxies: auto (VHDS for Envoy sidecars on delta xDS, else RDS; from %d virtual hosts in a route configuration on in buckets of hosts by SRDS, for Envoy 1.40 and newer), rds, vhds, or scoped (auto, but in buckets from %d on, and for Envoy 1.34 and newer)",
			controlplane.SplitOf(server.RoutesAuto).From, controlplane.SplitOf(server.RoutesScoped).From))
	fs.StringVar(&f.transport, "xds-transport", string(server.TransportHTTP2),
		"what serves xDS streams: http2 (Moonsail's own, for a fraction of the CPU time and memory) or grpc (grpc-go)")
	fs.DurationVar(&o.MaxConnectionAge, "max-connection-age", defaultConnectionAge,
		"how old connections of proxies get, a tenth more or less, until they are made anew, so that who they are is looked at again; 0: until their certificates expire")
	fs.IntVar(&o.ScopesPerIdentity, "max-scopes-per-identity", engine.DefaultGroupsPerIdentity,
		"how many scopes of configuration proxies of one service account may have, on the port with TLS; more are refused; 0: any number")
	terminal.Offer(cmd, "route-strategy", routeStrategies...)
	terminal.Offer(cmd, "xds-transport", transports...)
}

// addMeshFlags adds what the mesh is like where its configuration does not say.
func (f *serveFlags) addMeshFlags(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&f.mesh.Domain, "domain", f.mesh.Domain, "the cluster's DNS `DOMAIN`")
	fs.StringVar(&f.mesh.RootNamespace, "root-namespace", f.mesh.RootNamespace,
		"`NAMESPACE` whose Sidecar and DestinationRules are everybody's default, and that has the mesh's configuration")
	fs.StringVar(&f.options.Revision, "revision", model.DefaultRevision,
		"the control plane's `REVISION`, as istiod's: objects of Istio and the Gateway API that are labelled istio.io/rev with another are left to that one; empty: all are read")
	fs.StringVar(&f.mesh.AccessLogFile, "access-log-file", "", "where sidecars log requests, for example /dev/stdout (default: off)")
	fs.BoolVar(&f.registry, "outbound-registry-only", false,
		"block traffic to destinations that the mesh does not know (Istio's REGISTRY_ONLY)")
}

// addMeasureFlags adds those about what is told of changes and of this process.
func (f *serveFlags) addMeasureFlags(cmd *cobra.Command) {
	fs, o := cmd.Flags(), &f.options
	fs.StringVar(&f.otlp, "otlp-endpoint", "",
		"`URL` of a collector that gets each change as a trace: http://HOST:4318 or grpc://HOST:4317, https or grpcs with TLS (default: off, or as OTEL_EXPORTER_OTLP_ENDPOINT says)")
	fs.StringVar(&o.AgentTokenFile, "agent-token-file", "",
		"`FILE` whose first line is a token of the agents' --debug-token-file: without it only agents on this machine tell what their Envoys have")
	fs.DurationVar(&o.SampleInUse, "sample-in-use", 0,
		"measure at most so often, for one change and two proxies, the time from ACK until Envoy uses it (moonsail_in_use_seconds); 0: never")
	fs.BoolVar(&o.NoChangeLog, "no-change-log", false, "do not follow changes: to measure what that costs")
	_ = fs.MarkHidden("no-change-log") // it exists
	fs.IntVar(&f.profiling.MutexFraction, "profile-mutex", 0, "sample one of `N` lock contentions for /debug/pprof/mutex (default: none)")
	fs.DurationVar(&f.profiling.BlockRate, "profile-block", 0,
		"sample one event per so much `TIME` blocked for /debug/pprof/block (default: none)")
}
