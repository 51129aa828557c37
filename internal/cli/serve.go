package cli

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/controlplane"
	"github.com/moonsail/moonsail/internal/debug"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/server"
)

// serveFlags are the values of `moonsail serve`'s flags.
type serveFlags struct {
	options   controlplane.Options
	mesh      *model.Mesh
	strategy  string
	registry  bool
	profiling debug.Profiling
	logging   Logging
}

// NewServeCommand is `moonsail serve`: the control plane.
func NewServeCommand() *cobra.Command {
	f := &serveFlags{mesh: model.DefaultMesh()}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the control plane",
		Long: `Runs the control plane: reads Kubernetes and Istio resources, and brings them to
Envoy sidecars as they change.

--config is a directory tree of YAML: Kubernetes Service, EndpointSlice, Pod and
Namespace; Istio ServiceEntry, WorkloadEntry, VirtualService, DestinationRule and
Sidecar; any number of documents a file. It is watched. A document that cannot be used
is told in the log and at /debug/problems, and the last good state of its objects stays
in force ('moonsail analyze DIR' tells the same beforehand).

Each change is followed to the last proxy's ACK and told in one log line; see also
'moonsail changes' and 'moonsail proxies'.`,
		Example: `  moonsail serve --config mesh/ --xds-plaintext-addr 127.0.0.1:15010
  moonsail serve --config mesh/ --xds-plaintext-addr 127.0.0.1:15010 --outbound-registry-only`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	fs, o := cmd.Flags(), &f.options
	fs.StringVar(&o.ConfigDir, "config", "", "`DIR` with the mesh's configuration")
	fs.StringVar(&o.XDSPlaintextAddr, "xds-plaintext-addr", "", "`ADDR` of xDS without encryption or authentication: loopback only, or a network you trust (default: off)")
	fs.StringVar(&o.HTTPAddr, "http-addr", "127.0.0.1:15014", "`ADDR` of metrics, debug pages and profiles; empty: off")
	fs.StringVar(&f.strategy, "route-strategy", string(server.RoutesAuto), "how routes reach proxies: auto (VHDS for Envoy sidecars on delta xDS, else RDS), rds or vhds")
	fs.StringVar(&f.mesh.Domain, "domain", f.mesh.Domain, "the cluster's DNS `DOMAIN`")
	fs.StringVar(&f.mesh.RootNamespace, "root-namespace", f.mesh.RootNamespace, "`NAMESPACE` whose Sidecar and DestinationRules are everybody's default")
	fs.StringVar(&f.mesh.AccessLogFile, "access-log-file", "", "where sidecars log requests, for example /dev/stdout (default: off)")
	fs.BoolVar(&f.registry, "outbound-registry-only", false, "block traffic to destinations that the mesh does not know (Istio's REGISTRY_ONLY)")
	fs.IntVar(&f.profiling.MutexFraction, "profile-mutex", 0, "sample one of `N` lock contentions for /debug/pprof/mutex (default: none)")
	fs.DurationVar(&f.profiling.BlockRate, "profile-block", 0, "sample one event per so much time blocked for /debug/pprof/block (default: none)")
	f.logging.AddFlags(cmd)
	EnvFlags(cmd)
	_ = cmd.MarkFlagDirname("config")
	return cmd
}

func (f *serveFlags) run(cmd *cobra.Command) error {
	o := f.options
	if o.ConfigDir == "" {
		return usageError{fmt.Errorf("--config is needed: the directory with the mesh's YAML")}
	}
	o.RouteStrategy = server.RouteStrategy(f.strategy)
	if !slices.Contains([]server.RouteStrategy{server.RoutesAuto, server.RoutesRDS, server.RoutesVHDS}, o.RouteStrategy) {
		return usageError{fmt.Errorf("unknown --route-strategy %q: it is auto, rds or vhds", f.strategy)}
	}
	if o.XDSPlaintextAddr == "" {
		return usageError{fmt.Errorf("no address to serve proxies at: give --xds-plaintext-addr, for example 127.0.0.1:15010")}
	}
	if f.registry {
		f.mesh.Outbound = model.OutboundRegistryOnly
	}
	o.Mesh = f.mesh
	log, err := f.logging.Logger(cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	o.Log = log
	f.profiling.Apply()
	return controlplane.Run(cmd.Context(), o)
}
