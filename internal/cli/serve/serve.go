// Package serve is the command `moonsail serve`, which runs the control plane.
//
// serve.go has the command, flags.go its flags, check.go what flags must agree on, and istiod_env.go the environment
// variables of istiod.
package serve

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/cli/client"
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

// flags are the values of the flags of `moonsail serve`.
type flags struct {
	options   controlplane.Options
	mesh      *model.Mesh
	strategy  string
	transport string
	registry  bool
	otlp      string
	metricsAt string // the URL of Prometheus
	scrape    bool
	cluster   client.Cluster
	profiling debug.Profiling
	inject    injectFlags
	logging   terminal.Logging
	// certNames is what sets the names of the certificate, for errors.
	certNames string
}

// NewCommand returns the command `moonsail serve`.
func NewCommand() *cobra.Command {
	return (&flags{mesh: model.DefaultMesh()}).command()
}

const example = `  # Serve a directory of YAML, in plain text on this machine
  moonsail serve --config mesh/ --xds-plaintext-addr 127.0.0.1:15010

  # The same with mutual TLS
  moonsail serve --config mesh/ --xds-addr 127.0.0.1:15012 --token-auth-file tokens.csv

  # Serve the cluster of a kubeconfig
  moonsail serve --kubeconfig ~/.kube/config --xds-plaintext-addr 127.0.0.1:15010

  # In a Pod: serve its cluster
  moonsail serve --xds-addr :15012 --xds-cert-names mesh.example.com

  # Configure by environment variables
  MOONSAIL_CONFIG=mesh/ MOONSAIL_XDS_PLAINTEXT_ADDR=127.0.0.1:15010 moonsail serve --log-format json`

func (f *flags) command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the control plane",
		Long: `Run the control plane. It reads Kubernetes, Istio and Gateway API objects, and configures Envoy
sidecars and gateways.

Objects come from a Kubernetes API server (--kubeconfig; in a Pod, its own cluster) or from a
directory tree of YAML (--config). Changes apply at once. These kinds have an effect:

` + kindsRead() + `

MeshConfig is the ConfigMap "istio" in the root namespace, or that of --mesh-config-map. It takes
precedence over flags.

The log, /debug/problems and 'moonsail analyze' report invalid objects. The last valid version of
such an object stays in force. After a restart no such version is known: the valid parts of
policies then apply in the stricter reading. With --config, the control plane serves nothing while
a file with policies cannot be parsed.

With --xds-addr the control plane is also the certificate authority of the mesh. Workloads
authenticate with the token of their Kubernetes service account (audience istio-ca), or with a
token from --token-auth-file. Without an existing authority, the control plane creates a root and
stores it.

The log has one line for each change, when the last proxy has ACKed it. SIGTERM or SIGINT ends the
control plane.

--otlp-endpoint sends each change as an OpenTelemetry trace, too. OTEL_EXPORTER_OTLP_*,
OTEL_TRACES_SAMPLER, OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES apply.

Some environment variables of istiod are honoured, for example PILOT_DEBOUNCE_AFTER. The log
reports each one that is set. docs/reference/istio-compatibility.md lists them.`,
		Example: example,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	f.addFlags(cmd)
	terminal.EnvFlags(cmd)
	return cmd
}

// kindsRead lists the kinds that have an effect, by API, for the help text.
func kindsRead() string {
	const width = 86
	groups := map[string][]string{}
	for _, r := range config.Resources() {
		api := "Kubernetes"
		switch {
		case r.Group == gatewayapi.Group:
			api = "Gateway API"
		case r.Custom:
			api = "Istio"
		}
		if r.Read {
			groups[api] = append(groups[api], r.Kind)
		}
	}
	var out []string
	for _, api := range []string{"Kubernetes", "Istio", "Gateway API"} {
		line := fmt.Sprintf("  %-12s", api)
		for i, kind := range groups[api] {
			if i < len(groups[api])-1 {
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

func (f *flags) run(cmd *cobra.Command) error {
	f.certNamesOf(cmd.Flags())
	if err := f.check(); err != nil {
		return err
	}
	if f.options.Kubernetes != nil {
		if _, err := kube.Connect(*f.options.Kubernetes); err != nil {
			return f.cluster.Explain(err)
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
	if f.options.Prometheus, err = prometheusURL(f.metricsAt); err != nil {
		return terminal.UsageError{Err: err}
	}
	if err := applyIstiodVariables(&f.options, cmd.Flags(), os.LookupEnv, log); err != nil {
		return err
	}
	return explain(controlplane.Run(cmd.Context(), f.options))
}
