package cli

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/config"
	"github.com/moonsail/moonsail/internal/config/gatewayapi"
	"github.com/moonsail/moonsail/internal/controlplane"
	"github.com/moonsail/moonsail/internal/controlplane/debug"
	"github.com/moonsail/moonsail/internal/controlplane/tracing"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/source/kube"
	"github.com/moonsail/moonsail/internal/terminal"
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

istiod's PILOT_DEBOUNCE_AFTER, PILOT_DEBOUNCE_MAX, PILOT_ENABLE_EDS_DEBOUNCE,
PILOT_PUSH_THROTTLE, PILOT_ENABLE_IP_AUTOALLOCATE, PILOT_IP_AUTOALLOCATE_IPV4_PREFIX and
PILOT_IP_AUTOALLOCATE_IPV6_PREFIX are honoured where they are set; by default nothing
waits, and ServiceEntries without addresses get some. Of those
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
	terminal.EnvFlags(cmd)
	return cmd
}

// kindsRead lists the kinds that have an effect, by whose they are, in lines for a help text.
func kindsRead() string {
	const width = 86
	groups := map[string][]string{}
	for _, r := range config.Resources() {
		whose := "Kubernetes"
		switch {
		case r.Group == gatewayapi.Group:
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
	if f.options.Traces, err = tracing.Read(f.otlp, os.LookupEnv); err != nil {
		return terminal.UsageError{Err: err}
	}
	if err := pilotSwitches(&f.options, os.LookupEnv, log); err != nil {
		return err
	}
	return f.explain(controlplane.Run(cmd.Context(), f.options))
}
