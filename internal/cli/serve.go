package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/controlplane"
	"github.com/moonsail/moonsail/internal/debug"
	"github.com/moonsail/moonsail/internal/istioapi"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/source/kube"
	"github.com/moonsail/moonsail/internal/trace"
	"github.com/moonsail/moonsail/internal/xds/server"
)

// serveFlags are those of "moonsail serve".
type serveFlags struct {
	options   controlplane.Options
	mesh      *model.Mesh
	strategy  string
	transport string
	registry  bool
	otlp      string
	scrape    bool
	kube      kubeFlags
	profiling debug.Profiling
	inject    serveInjectFlags
	logging   Logging
}

var routeStrategies = []string{string(server.RoutesAuto), string(server.RoutesRDS), string(server.RoutesVHDS), string(server.RoutesScoped)}

// defaultConnectionAge is what Istio's charts give istiod (keepaliveMaxServerConnectionAge).
const defaultConnectionAge = 30 * time.Minute

var transports = []string{string(server.TransportGRPC), string(server.TransportHTTP2)}

// NewServeCommand is "moonsail serve".
func NewServeCommand() *cobra.Command {
	return (&serveFlags{mesh: model.DefaultMesh()}).command()
}

func (f *serveFlags) command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the control plane",
		Long: `Runs the control plane: reads Kubernetes and Istio resources, and brings them to
Envoy sidecars as they change.

They are read from a Kubernetes API server (--kubeconfig; in a Pod, its own cluster), or
from --config, a directory tree of YAML, and watched:

` + kindsRead() + `

The mesh's configuration is the ConfigMap "istio" of the root namespace, which goes before
flags. An object that cannot be used is told in the log
and at /debug/problems, and its last good state stays in force ('moonsail analyze' tells
the same beforehand). Where none is known, as after a restart, what is good of policies and
authentication is in force, so that a mistake in them opens nothing; as long as a file of them
cannot be read at all, a control plane that starts serves nothing.

Each change is followed to the last proxy's ACK and told in one log line; see also
'moonsail changes', 'moonsail explain' and 'moonsail proxies'. SIGTERM or SIGINT ends it.

With --status, what is wrong with an Istio object is also said in its status: what is
invalid, what does not fit other objects, what proxies refuse. Of several control planes
one writes. With --webhook-addr a validating webhook refuses what is invalid.

With --otlp-endpoint each change is also a trace for OpenTelemetry, its stages and slowest
proxies spans; OTEL_EXPORTER_OTLP_*, OTEL_TRACES_SAMPLER, OTEL_SERVICE_NAME and
OTEL_RESOURCE_ATTRIBUTES mean what they mean elsewhere.

With --xds-addr, the control plane is the mesh's certificate authority, too. A workload gets
its certificate by the token of its Kubernetes service account (audience istio-ca), or by
one of --token-auth-file, and its configuration by that certificate: for no other namespace
and service account than its own. Where no authority is given a root is made, and kept.

istiod's PILOT_DEBOUNCE_AFTER, PILOT_DEBOUNCE_MAX, PILOT_ENABLE_EDS_DEBOUNCE and
PILOT_PUSH_THROTTLE are honoured where they are set; by default nothing waits. Of those
that have no meaning here (PILOT_ENABLE_CDS_CACHE, PILOT_ENABLE_RDS_CACHE) the log says why.`,
		Example: `  moonsail serve --config mesh/ --xds-plaintext-addr 127.0.0.1:15010
  moonsail serve --config mesh/ --xds-addr 127.0.0.1:15012 --token-auth-file tokens.csv
  moonsail serve --xds-addr :15012 --xds-cert-names mesh.example.com
  moonsail serve --kubeconfig ~/.kube/config --xds-plaintext-addr 127.0.0.1:15010
  moonsail serve --config mesh/ --xds-plaintext-addr 127.0.0.1:15010 --outbound-registry-only
  MOONSAIL_CONFIG=mesh/ MOONSAIL_XDS_PLAINTEXT_ADDR=127.0.0.1:15010 moonsail serve --log-format json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	f.addFlags(cmd)
	EnvFlags(cmd)
	return cmd
}

// kindsRead lists the kinds that have an effect, by whose they are, in lines for a help text.
func kindsRead() string {
	const width = 86
	groups := map[string][]string{}
	for _, r := range istioapi.Resources() {
		whose := "Kubernetes"
		switch {
		case r.Group == istioapi.GroupGatewayAPI:
			whose = "Gateway API"
		case r.Custom:
			whose = "Istio"
		}
		if r.Read {
			groups[whose] = append(groups[whose], r.Kind)
		}
	}
	var out []string
	for _, whose := range []string{"Kubernetes", "Istio", "Gateway API"} {
		line := fmt.Sprintf("  %-12s", whose)
		for i, kind := range groups[whose] {
			if i < len(groups[whose])-1 {
				kind += ","
			}
			if len(line)+1+len(kind) > width {
				out, line = append(out, line), strings.Repeat(" ", 14)
			}
			line += " " + kind
		}
		out = append(out, line)
	}
	return strings.Join(out, "\n")
}

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
	fs.StringVar(&o.Webhook.Addr, "webhook-addr", "",
		"`ADDR` of the validating webhook, for example :15017 (default: off)")
	fs.StringVar(&o.Webhook.CertFile, "webhook-cert", "", "`FILE` with the webhook's certificate (default: one is made)")
	fs.StringVar(&o.Webhook.KeyFile, "webhook-key", "", "`FILE` with that certificate's private key")
	fs.StringVar(&o.Webhook.Config, "webhook-config", "",
		"`NAME` of the ValidatingWebhookConfiguration that is to trust a certificate which is made, for example moonsail-validator")
	f.inject.add(cmd)
	fs.StringVar(&f.strategy, "route-strategy", string(server.RoutesAuto),
		fmt.Sprintf("how routes reach proxies: auto (VHDS for Envoy sidecars on delta xDS, else RDS; from %d virtual hosts in a route configuration on in buckets of hosts by SRDS, for Envoy 1.40 and newer), rds, vhds, or scoped (auto, but in buckets from %d on, and for Envoy 1.34 and newer)",
			controlplane.SplitOf(server.RoutesAuto).From, controlplane.SplitOf(server.RoutesScoped).From))
	fs.StringVar(&f.transport, "xds-transport", string(server.TransportHTTP2),
		"what serves xDS streams: http2 (Moonsail's own, for a fraction of the CPU time and memory) or grpc (grpc-go)")
	fs.DurationVar(&o.MaxConnectionAge, "max-connection-age", defaultConnectionAge,
		"how old connections of proxies get, a tenth more or less, until they are made anew, so that who they are is looked at again; 0: until their certificates expire")
	fs.StringVar(&f.mesh.Domain, "domain", f.mesh.Domain, "the cluster's DNS `DOMAIN`")
	fs.StringVar(&f.mesh.RootNamespace, "root-namespace", f.mesh.RootNamespace,
		"`NAMESPACE` whose Sidecar and DestinationRules are everybody's default, and that has the mesh's configuration")
	fs.StringVar(&f.mesh.AccessLogFile, "access-log-file", "", "where sidecars log requests, for example /dev/stdout (default: off)")
	fs.BoolVar(&f.registry, "outbound-registry-only", false,
		"block traffic to destinations that the mesh does not know (Istio's REGISTRY_ONLY)")
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
	f.logging.AddFlags(cmd)
	// The only error is a flag that does not exist.
	_ = cmd.MarkFlagDirname("config")
	_ = cmd.RegisterFlagCompletionFunc("route-strategy",
		cobra.FixedCompletions(routeStrategies, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("xds-transport",
		cobra.FixedCompletions(transports, cobra.ShellCompDirectiveNoFileComp))
}

func (f *serveFlags) run(cmd *cobra.Command) error {
	if err := f.check(); err != nil {
		return err
	}
	if f.options.Kubernetes != nil {
		if _, err := kube.Connect(*f.options.Kubernetes); err != nil {
			return f.kube.explainKube(err)
		}
	}
	log, err := f.logging.Logger(cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	if f.registry {
		f.mesh.Outbound = model.OutboundRegistryOnly
	}
	f.profiling.Apply()
	f.options.Mesh, f.options.RouteStrategy, f.options.Log = f.mesh, server.RouteStrategy(f.strategy), log
	f.options.Transport = server.Transport(f.transport)
	if f.options.Traces, err = trace.Read(f.otlp, os.LookupEnv); err != nil {
		return usageError{err}
	}
	if err := pilotSwitches(&f.options, os.LookupEnv, log); err != nil {
		return err
	}
	return f.explain(controlplane.Run(cmd.Context(), f.options))
}

// check finds what is wrong with the flags before anything starts.
func (f *serveFlags) check() error {
	cluster, err := f.kube.choose("--config", f.options.ConfigDir != "")
	if err != nil {
		return err
	}
	f.options.Kubernetes = cluster
	if f.options.XDSPlaintextAddr == "" && f.options.Identity.Addr == "" {
		return usageError{errors.New("no address to serve proxies at: give --xds-addr, for example :15012, or --xds-plaintext-addr 127.0.0.1:15010")}
	}
	if !slices.Contains(routeStrategies, f.strategy) {
		return usageError{fmt.Errorf("unknown --route-strategy %q: it is auto, rds, vhds or scoped", f.strategy)}
	}
	if !slices.Contains(transports, f.transport) {
		return usageError{fmt.Errorf("unknown --xds-transport %q: it is grpc or http2", f.transport)}
	}
	if f.profiling.MutexFraction < 0 || f.profiling.BlockRate < 0 {
		return usageError{errors.New("profiling rates are not negative: 0 is none")}
	}
	if f.options.SampleInUse < 0 {
		return usageError{errors.New("--sample-in-use is not negative: 0 is never")}
	}
	if f.options.Heartbeat < 0 {
		return usageError{errors.New("--heartbeat is not negative: 0 is none")}
	}
	if err := f.checkAccess(); err != nil {
		return usageError{err}
	}
	if err := errors.Join(f.checkUsers(), f.checkIdentity(), f.checkPeers()); err != nil {
		return usageError{err}
	}
	if cluster != nil {
		return nil
	}
	return f.checkDir()
}

// checkUsers checks what tells users of their mistakes, and completes it.
func (f *serveFlags) checkUsers() error {
	o, w := &f.options, &f.options.Webhook
	switch {
	case o.Status && o.Kubernetes == nil:
		return errors.New("--status is about objects of a cluster: leave it out with --config")
	case w.Addr == "" && (w.CertFile != "" || w.KeyFile != "" || w.Config != ""):
		return errors.New("--webhook-cert, --webhook-key and --webhook-config are the webhook's: give --webhook-addr too")
	case (w.CertFile == "") != (w.KeyFile == ""):
		return errors.New("--webhook-cert and --webhook-key go together")
	case w.Config != "" && w.CertFile != "":
		return errors.New("--webhook-config is for a certificate that is made: whoever issued --webhook-cert puts its CA there")
	case w.Config != "" && o.Kubernetes == nil:
		return errors.New("--webhook-config is an object of a cluster: leave it out with --config")
	}
	if err := f.inject.into(w, o.Kubernetes != nil); err != nil {
		return err
	}
	service := "moonsail." + f.mesh.RootNamespace
	w.Names = []string{"127.0.0.1", "::1", "localhost", service, service + ".svc", service + ".svc." + f.mesh.Domain}
	return nil
}

func (f *serveFlags) checkDir() error {
	switch info, err := os.Stat(f.options.ConfigDir); {
	case errors.Is(err, fs.ErrNotExist):
		return &UserError{What: "there is no such directory", Where: "--config " + f.options.ConfigDir, Next: "make it, or name another"}
	case err != nil:
		return &UserError{Where: "--config " + f.options.ConfigDir, Err: err}
	case !info.IsDir():
		return &UserError{What: "it is a file", Where: "--config " + f.options.ConfigDir, Next: "name the directory that holds it"}
	}
	return nil
}

// explain says what to do about why the control plane could not run.
func (f *serveFlags) explain(err error) error {
	var address *net.AddrError
	switch {
	case errors.As(err, &address):
		return &UserError{Err: err, Next: "write it as HOST:PORT or :PORT, for example 127.0.0.1:15010"}
	case errors.Is(err, syscall.EADDRINUSE):
		return &UserError{Err: err, Next: "another control plane may be running; end it, or choose another address with that flag"}
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EADDRNOTAVAIL):
		return &UserError{Err: err, Next: "choose an address of this machine that you may listen on"}
	}
	return err
}
