// Package agent is the command `moonsail agent`, which runs next to an application, and its subcommands.
//
// agent.go has the command, flags.go its flags, config.go makes the agent's configuration of flags, environment and Pod.
package agent

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/cli/istioenv"
	sidecar "github.com/moonsail/moonsail/internal/sidecar/agent"
	"github.com/moonsail/moonsail/internal/sidecar/agent/workload"
	"github.com/moonsail/moonsail/internal/terminal"
)

// exitForced is the exit status if connections may have been cut.
const exitForced terminal.ExitCode = 3

// flags are the values of the flags of `moonsail agent`.
type flags struct {
	config       sidecar.Config
	pod          string
	workload     workload.Workload
	locality     string
	interception string
	concurrency  int
	drainTime    time.Duration
	earlyEnd     bool
	leaveTimeout time.Duration
	proxyConfig  string
	logging      terminal.Logging
	print        bool
	intercept    interceptFlags
	podInfo      string
}

const long = `Run Envoy as the sidecar of a workload, or as a gateway (--type router). The agent writes Envoy's
bootstrap, restarts Envoy after a crash, answers readiness probes and metric scrapes, renews
certificates, and drains before it ends.

Workload:
  Flags, environment variables, or a Pod in a YAML file (--pod) describe the workload. Variables
  have Istio's names where Istio has them. ISTIO_META_X=value and ISTIO_METAJSON_X={...} add to the
  node metadata. Flags take precedence over the annotation proxy.istio.io/config, and that over
  $PROXY_CONFIG.

Gateways:
  A router listens on the ports of the Istio Gateways that select its labels. It has no application.

Threads:
  Envoy has one worker thread for each whole CPU of the CPU limit ($ISTIO_CPU_LIMIT, else cpu.max of
  the cgroup), and at least one. Without a limit it has 2.

Metrics:
  GET /stats/prometheus on the status port returns the metrics of the agent, Envoy and the
  application. The annotations prometheus.io/scrape, port and path locate the application's.

Addresses:
  If the workload's IP is a loopback address, all ports listen on it. Many sidecars can then run on
  one machine, each with another --ip (127.0.10.1, 127.0.10.2, ...). Otherwise Envoy's admin
  interface listens on 127.0.0.1 and the other ports on all addresses.

  Without interception (--interception-mode NONE), applications call services at 127.0.0.1 and the
  service's port. All sidecars of a machine listen there, and any of them takes the call. To use
  another address, add an egress listener with port and bind to a Sidecar.

Identity:
  With --xds-plaintext=false, --ca-address, --mounted-certs or --workload-api, the workload has a
  certificate. The agent passes the key only to Envoy, over a Unix socket. For a CA it creates the
  key itself. The token in --token-file, read for each request, identifies the workload to the CA.
  The agent renews a certificate when half of its lifetime is left, without cutting connections, and
  reloads --xds-root-cert when the file changes. GET /debug/identity on the status port shows the
  certificate and the last error.

Signals:
  The first SIGTERM or SIGINT drains: readiness fails, the control plane removes the endpoints, and
  HTTP clients are asked to close their connections. The agent ends when no connection is left, or
  after --drain-time. Draining takes at least --drain-time if the control plane is unreachable, if
  some proxy has not ACKed the removal within --leave-timeout, or with
  --exit-on-zero-active-connections=false. A second signal ends the agent at once. SIGHUP and
  SIGUSR1 (reopen access logs) go to Envoy.

  In an injected Pod the application's containers end after every proxy has ACKed the removal.
  Elsewhere, run 'moonsail agent drain' first, or end the application after the sidecar.

Exit status: 0 drained, 1 failed to start, 2 wrong flags, 3 ended by force.`

const example = `  # Run a sidecar on this machine
  moonsail agent --name reviews-v1-1 --namespace shop --ip 127.0.10.3 --labels app=reviews,version=v1

  # Describe the workload by one of several Pods in a file
  moonsail agent --pod pods.yaml --name reviews-v1-1 --xds-address 127.0.0.1:15010

  # Use mutual TLS
  moonsail agent --pod pod.yaml --xds-plaintext=false --xds-address localhost:15012 --xds-root-cert root-cert.pem --token-file token

  # Run a gateway
  moonsail agent --type router --name edge-1 --namespace edge --ip 127.0.10.9 --labels istio=ingressgateway

  # Print Envoy's bootstrap
  moonsail agent --pod pod.yaml --print-bootstrap`

// NewCommand returns the command `moonsail agent`.
func NewCommand() *cobra.Command { return (&flags{}).command() }

func (f *flags) command() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "agent",
		Short:   "Run a sidecar or a gateway",
		Long:    long,
		Example: example,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	f.addFlags(cmd)
	cmd.AddCommand(newDrainCommand(), newInterceptCommand(), newWaitCommand())
	return cmd
}

func (f *flags) run(cmd *cobra.Command) error {
	c, err := f.build(cmd, os.Environ())
	if err != nil {
		return err
	}
	for _, name := range terminal.LinksToServices(cmd) {
		c.Log.Warn("variable is the link to a Service, and has no effect", "variable", name, "value", os.Getenv(name))
	}
	istioenv.Warn(istioenv.AgentAll(), os.LookupEnv, c.Log, "Istio's agent")
	if f.print {
		bootstrap, err := sidecar.Bootstrap(*c)
		if err != nil {
			return asUsage(err)
		}
		_, err = terminal.Raw(cmd.OutOrStdout()).Write(bootstrap)
		return err
	}
	ctx, cancel := context.WithCancel(cmd.Context())
	defer cancel()
	defer handleSignals(c, cancel)()
	if err := sidecar.Run(ctx, *c); errors.Is(err, sidecar.ErrForced) {
		return exitForced
	} else if err != nil {
		return asUsage(err)
	}
	return nil
}

// handleSignals drains at the first SIGTERM or SIGINT, aborts at the second, and passes other signals to Envoy.
// release stops the handling and waits for its goroutine.
func handleSignals(c *sidecar.Config, drain context.CancelFunc) (release func()) {
	ends, others := make(chan os.Signal, 2), make(chan os.Signal, 8)
	signal.Notify(ends, os.Interrupt, syscall.SIGTERM)
	signal.Notify(others, syscall.SIGHUP, syscall.SIGUSR1)
	abort, quit, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	c.Abort, c.Signals = abort, others
	go func() {
		defer close(done)
		for _, act := range []func(){drain, func() { close(abort) }} {
			select {
			case <-ends:
				act()
			case <-quit:
				return
			}
		}
	}()
	return func() {
		signal.Stop(ends)
		signal.Stop(others)
		close(quit)
		<-done
	}
}
