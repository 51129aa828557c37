package serve

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/cli/client"
	"github.com/moonsail/moonsail/internal/controlplane"
	"github.com/moonsail/moonsail/internal/controlplane/webhook"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/engine"
	"github.com/moonsail/moonsail/internal/security/ca"
	"github.com/moonsail/moonsail/internal/terminal"
	"github.com/moonsail/moonsail/internal/xds/server"
)

var routeStrategies = []string{string(server.RoutesAuto), string(server.RoutesRDS), string(server.RoutesVHDS), string(server.RoutesScoped)}

// defaultConnectionAge is what Istio's charts set for istiod (keepaliveMaxServerConnectionAge).
const defaultConnectionAge = 30 * time.Minute

const defaultCADirText = "~/.local/state/moonsail/ca"

var transports = []string{string(server.TransportGRPC), string(server.TransportHTTP2)}

func (f *flags) addFlags(cmd *cobra.Command) {
	fs, o := cmd.Flags(), &f.options
	fs.StringVar(&o.ConfigDir, "config", "", "`DIR` with the mesh's configuration as YAML")
	f.cluster.AddFlags(cmd)
	fs.DurationVar(&o.Heartbeat, "heartbeat", time.Second,
		"interval at which to measure the delay of the API server, with a Lease in the root namespace; 0: never")
	fs.StringVar(&o.XDSPlaintextAddr, "xds-plaintext-addr", "",
		"`ADDR` to serve xDS without encryption or authentication, for loopback or a trusted network (default: off)")
	f.addIdentityFlags(cmd)
	f.addPeerFlags(cmd)
	fs.StringVar(&o.HTTPAddr, "http-addr", client.DefaultAddress, "`ADDR` to serve metrics and debug pages; beyond loopback, clients need credentials; empty: off")
	fs.StringVar(&o.ReadyAddr, "ready-addr", "", "`ADDR` to serve only /ready, to anyone and without TLS; Kiali reads it at port 8080 of the Pod (default: off)")
	f.addAccessFlags(cmd)
	fs.BoolVar(&o.Status, "status", false,
		"write problems of Istio objects to their status (condition Reconciled); costs writes to the API server")
	fs.BoolVar(&o.DeployGateways, "deploy-gateways", false,
		"deploy the Gateways of the Gateway API: a Deployment of routers, a Service and a ServiceAccount for each; needs --status and --inject")
	f.addWebhookFlags(cmd)
	f.addXDSFlags(cmd)
	f.addMeshFlags(cmd)
	f.addMeasureFlags(cmd)
	f.addDependencyFlags(cmd)
	f.logging.AddFlags(cmd)
	_ = cmd.MarkFlagDirname("config") // the only error is a flag that does not exist
}

// addIdentityFlags adds the flags of xDS with TLS and of the certificate authority.
func (f *flags) addIdentityFlags(cmd *cobra.Command) {
	fs, o := cmd.Flags(), &f.options.Identity
	fs.StringVar(&o.Addr, "xds-addr", "", "`ADDR` to serve xDS and the certificate authority with TLS, for example :15012 (default: off)")
	fs.StringSliceVar(&o.Names, "xds-cert-names", nil,
		"additional `NAMES` and IP addresses in the certificate of --xds-addr; it always has localhost, 127.0.0.1, and istiod and moonsail in the root namespace")
	fs.StringVar(&o.CADir, "ca-dir", "",
		"`DIR` of the certificate authority: "+strings.Join([]string{ca.CertFile, ca.KeyFile, ca.ChainFile, ca.RootFile}, ", ")+
			"; in an empty one a root is created (default: Secret cacerts or istio-ca-secret in the root namespace; with --config "+defaultCADirText+")")
	fs.StringVar(&o.External.CertFile, "xds-cert", "", "`FILE` with the certificate of --xds-addr, if another authority issues the mesh's certificates; needs --xds-key and --xds-root-cert (default: the control plane is the authority)")
	fs.StringVar(&o.External.KeyFile, "xds-key", "", "`FILE` with the private key of --xds-cert")
	fs.StringVar(&o.External.RootFile, "xds-root-cert", "", "`FILE` with the mesh's root certificates, beside --xds-cert")
	fs.StringVar(&o.External.WorkloadAPI, "workload-api", "", "`ADDR` of the SPIFFE Workload API, for example of SPIRE's agent, as unix:///path, which gives the control plane its certificate and the mesh's roots")
	fs.StringVar(&o.TokenFile, "token-auth-file", "",
		"`FILE` of tokens with which workloads get their first certificate, one per line: token,namespace,service-account")
	fs.DurationVar(&o.TTL, "workload-cert-ttl", ca.DefaultTTL, "lifetime of a workload's certificate if the request names none")
	fs.DurationVar(&o.MaxTTL, "max-workload-cert-ttl", ca.DefaultMaxTTL, "maximum lifetime of a workload's certificate")
	for flag, name := range istiodFlags {
		terminal.EnvFlag(cmd, flag, terminal.Variable(flag), name)
	}
	// The only error is a flag that does not exist.
	_ = cmd.MarkFlagDirname("ca-dir")
	for _, name := range []string{"token-auth-file", "xds-cert", "xds-key", "xds-root-cert"} {
		_ = cmd.MarkFlagFilename(name)
	}
}

// addPeerFlags adds the flags that locate the other control planes of the mesh.
func (f *flags) addPeerFlags(cmd *cobra.Command) {
	fs, o := cmd.Flags(), &f.options.Replicas
	fs.StringSliceVar(&o.Addresses, "peer", nil,
		"`ADDR` of another control plane of this mesh: its --xds-addr as host:port (its --xds-plaintext-addr if this one has no --xds-addr); a name may have several addresses; may be repeated")
	fs.StringVar(&o.Service, "peer-service", controlplane.DefaultPeerService,
		"`NAME` of the Service in the root namespace whose endpoints are the control planes of this mesh, with Kubernetes as the source; empty: none")
}

// addAccessFlags adds the flags that control access to --http-addr.
func (f *flags) addAccessFlags(cmd *cobra.Command) {
	fs, a := cmd.Flags(), &f.options.HTTPAccess
	a.Flags = "--http"
	fs.StringVar(&a.TokenFile, "http-token-file", "", "`FILE` of bearer tokens, one per line, for access to --http-addr from other machines; read for each request")
	fs.StringVar(&a.CertFile, "http-cert", "", "`FILE` with a certificate to serve --http-addr with TLS; read for each connection")
	fs.StringVar(&a.KeyFile, "http-key", "", "`FILE` with the private key of --http-cert")
	fs.StringVar(&a.ClientCA, "http-client-ca", "", "`FILE` of CA certificates whose client certificates give access to --http-addr from other machines")
	fs.BoolVar(&f.scrape, "http-scrape", false, "serve /metrics, /ready and /version at --http-addr without credentials, for Prometheus and probes")
}

func (f *flags) addWebhookFlags(cmd *cobra.Command) {
	fs, w := cmd.Flags(), &f.options.Webhook
	fs.StringVar(&w.Addr, "webhook-addr", "", "`ADDR` to serve the validating webhook, for example :15017 (default: off)")
	fs.StringVar(&w.CertFile, "webhook-cert", "", "`FILE` with the webhook's certificate (default: the control plane creates one)")
	fs.StringVar(&w.KeyFile, "webhook-key", "", "`FILE` with the private key of --webhook-cert")
	fs.StringVar(&w.ClientCA, "webhook-client-ca", "", "`FILE` of CA certificates: requests to the webhooks need a client certificate of one of them, which the API server must be given (default: none)")
	fs.StringVar(&w.Config, "webhook-config", "",
		"`NAME` of the ValidatingWebhookConfiguration that gets the CA of a created certificate, for example moonsail-validator")
	f.inject.add(cmd)
}

// injectFlags are the flags of the webhook that injects sidecars.
type injectFlags struct {
	on     bool
	file   string
	config string // name of the MutatingWebhookConfiguration
}

func (f *injectFlags) add(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.BoolVar(&f.on, "inject", false, "serve the mutating webhook that injects sidecars into Pods, at "+webhook.InjectPath+" of --webhook-addr")
	fs.StringVar(&f.file, "inject-config", "", "YAML `FILE` with the configuration of injection, as for 'moonsail inject'")
	fs.StringVar(&f.config, "inject-webhook-config", "",
		"`NAME` of the MutatingWebhookConfiguration that gets the CA of a created certificate, for example moonsail-injector")
}

// addXDSFlags adds the flags of how to serve proxies.
func (f *flags) addXDSFlags(cmd *cobra.Command) {
	fs, o := cmd.Flags(), &f.options
	fs.StringVar(&f.strategy, "route-strategy", string(server.RoutesAuto),
		fmt.Sprintf("`STRATEGY` with which routes reach proxies: auto (VHDS for Envoy sidecars on delta xDS, else RDS; route shards from %d virtual hosts, for Envoy 1.40 and newer), rds, vhds, or scoped (auto, with route shards from %d virtual hosts, for Envoy 1.34 and newer)",
			controlplane.ShardingOf(server.RoutesAuto).From, controlplane.ShardingOf(server.RoutesScoped).From))
	fs.StringVar(&f.transport, "xds-transport", string(server.TransportHTTP2),
		"`SERVER` of xDS streams: http2 (Moonsail's own, with less CPU and memory) or grpc (grpc-go)")
	fs.DurationVar(&o.MaxConnectionAge, "max-connection-age", defaultConnectionAge,
		"maximum age of a proxy connection (plus or minus 10 %); the proxy then reconnects and authenticates again; 0: until its certificate expires")
	fs.IntVar(&o.GroupsPerIdentity, "max-scopes-per-identity", engine.DefaultGroupsPerIdentity,
		"maximum number of proxy groups of one service account at --xds-addr; 0: no limit")
	terminal.Offer(cmd, "route-strategy", routeStrategies...)
	terminal.Offer(cmd, "xds-transport", transports...)
}

// addMeshFlags adds settings of the mesh, which MeshConfig overrides.
func (f *flags) addMeshFlags(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&f.mesh.Domain, "domain", f.mesh.Domain, "DNS `DOMAIN` of the cluster")
	fs.StringVar(&f.mesh.RootNamespace, "root-namespace", f.mesh.RootNamespace, "`NAMESPACE` of MeshConfig and of mesh-wide defaults, for example a Sidecar for all namespaces")
	fs.StringVar(&f.options.MeshConfigMap, "mesh-config-map", model.MeshConfigName, "`NAME` of the ConfigMap with MeshConfig, in the root namespace")
	fs.StringVar(&f.options.Revision, "revision", model.DefaultRevision,
		"`REVISION` of the control plane; it ignores Istio and Gateway API objects whose label istio.io/rev names another, except Gateways of the Gateway API, which it serves but does not deploy; empty: the label does not count")
	fs.StringVar(&f.mesh.AccessLogFile, "access-log-file", "", "`FILE` of the sidecars' access logs, for example /dev/stdout (default: off)")
	fs.BoolVar(&f.options.FetchAllowLoopback, "fetch-allow-loopback", false, "allow jwksUri to name servers on this machine, for local development")
	fs.StringVar((*string)(&f.mesh.Delivery), "outbound", string(model.DeliverFull),
		"`DELIVERY` of clusters to sidecars: full, on-demand (when an application calls them for the first time; Envoy 1.40 and newer), or auto "+
			"(on-demand for sidecars that see many services); the annotation "+model.AnnotationOutbound+" of a Pod or Namespace overrides it")
	terminal.Offer(cmd, "outbound", model.Deliveries...)
	fs.IntVar(&f.mesh.OnDemandFrom, "on-demand-from", model.OnDemandFrom,
		"`NUMBER` of visible services from which auto means on-demand; below three quarters of it, full (each time a quarter lower)")
	fs.BoolVar(&f.registry, "outbound-registry-only", false, "block requests to destinations outside the mesh (Istio's REGISTRY_ONLY)")
}

// addDependencyFlags adds the flags of learned dependencies.
func (f *flags) addDependencyFlags(cmd *cobra.Command) {
	fs, o := cmd.Flags(), &f.options.Dependencies
	fs.BoolVar(&o.Learn, "learn-dependencies", true,
		"remember which services workloads call, for 'moonsail dependencies', and for sidecars with configuration on demand, which start with that of those services; "+
			"with Kubernetes as the source, in the ConfigMap "+controlplane.DependenciesName+" of the root namespace")
	fs.StringVar(&o.File, "dependencies-file", "", "`FILE` that keeps what is remembered, with --config (default: it is lost when the control plane ends)")
	_ = cmd.MarkFlagFilename("dependencies-file") // the only error is a flag that does not exist
}

// addMeasureFlags adds the flags of traces, measurements and profiles.
func (f *flags) addMeasureFlags(cmd *cobra.Command) {
	fs, o := cmd.Flags(), &f.options
	fs.StringVar(&f.otlp, "otlp-endpoint", "",
		"`URL` of a collector for traces of changes: http://HOST:4318 or grpc://HOST:4317, with TLS https or grpcs (default: $OTEL_EXPORTER_OTLP_ENDPOINT, else off)")
	fs.StringVar(&f.metricsAt, "prometheus", "",
		"`URL` of a Prometheus that scrapes the sidecars, for the dashboard's graph of calls: http://HOST:9090 (default: the control plane asks connected proxies while the graph is open)")
	fs.StringVar(&o.AgentTokenFile, "agent-token-file", "",
		"`FILE` whose first line is a token from the agents' --debug-token-file; without it, only agents on this machine answer")
	fs.DurationVar(&o.SampleInUse, "sample-in-use", 0,
		"interval at which to measure the time from ACK until Envoy uses a change, for one change and two proxies (moonsail_in_use_seconds); 0: never")
	fs.BoolVar(&o.NoChangeLog, "no-change-log", false, "do not follow changes, to measure the cost of following them")
	_ = fs.MarkHidden("no-change-log") // the only error is a flag that does not exist
	fs.IntVar(&f.profiling.MutexFraction, "profile-mutex", 0, "sample one in `N` lock contentions for /debug/pprof/mutex (default: none)")
	fs.DurationVar(&f.profiling.BlockRate, "profile-block", 0, "sample one event per `TIME` blocked for /debug/pprof/block (default: none)")
}
