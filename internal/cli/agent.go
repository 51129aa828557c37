package cli

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/sidecar/agent"
	"github.com/moonsail/moonsail/internal/terminal"
)

// exitForced: connections may have been cut.
const exitForced terminal.ExitCode = 3

// agentFlags are the values of `moonsail agent`'s flags, before they become a Config.
type agentFlags struct {
	config       agent.Config
	pod          string
	workload     agent.Workload
	locality     string
	interception string
	concurrency  int
	drainTime    time.Duration
	leaveTimeout time.Duration
	proxyConfig  string
	logLevel     string
	logFormat    string
	print        bool
	intercept    interceptFlags
	podInfo      string
}

const agentLong = `Runs a sidecar for one workload: writes Envoy's bootstrap, starts Envoy, starts it
again if it crashes, answers readiness probes and metric scrapes, and drains before
it ends.

Flags, environment variables (Istio's names where it has them), or a Kubernetes Pod in a
YAML file (--pod) describe the workload. ISTIO_META_X=v and
ISTIO_METAJSON_X={...} go into the node's metadata, as in Istio. The annotation
proxy.istio.io/config (concurrency, drainDuration, terminationDrainDuration,
proxyMetadata, proxyStatsMatcher...) beats $PROXY_CONFIG; a flag beats both. By default Envoy has one worker thread for
each whole CPU of the CPU limit ($ISTIO_CPU_LIMIT, else cpu.max of the cgroup), and at
least one; without a limit it has 2.

With --type router the sidecar is a gateway: it listens on the ports of the Gateways
(networking.istio.io) that select its labels, and has no application behind it.

GET /stats/prometheus on the status port returns the metrics of the agent, of Envoy and
of the application, which the annotations prometheus.io/scrape, port and path locate.

Addresses: if the workload's IP is a loopback address, everything listens there, so
many sidecars can run on one machine, each with another --ip (127.0.10.1,
127.0.10.2...: on Linux these need no set-up). Otherwise Envoy's admin
interface listens on 127.0.0.1 and the other ports on all addresses. Without interception
(--interception-mode NONE) an application calls services at 127.0.0.1 and their port: there all
sidecars of a machine listen, and any takes the call. To listen at another address, add an
egress listener with port and bind to a Sidecar.

Identity: with --xds-plaintext=false, --ca-address or --mounted-certs the workload has a
certificate. The agent makes its key, and gives it to Envoy only, over a Unix socket. The
CA identifies the workload by the token in --token-file, which the agent reads each time.
The agent renews a certificate when half of its life is left (--cert-grace-period-ratio),
without cutting connections. It loads --xds-root-cert again when the file changes. GET
/debug/identity on the status port shows the certificate and the last error.

Signals: the first SIGTERM or SIGINT drains. Readiness fails, the control plane removes the
endpoints and answers when every proxy has ACKed that, HTTP clients are asked to close
their connections, and the sidecar ends when no connection is left or after --drain-time.
If the control plane cannot be reached, or a proxy does not ACK within --leave-timeout,
the drain takes at least --drain-time. A second signal ends the sidecar at once. SIGHUP
and SIGUSR1 (reopen access logs) are passed to Envoy.

In Kubernetes let "moonsail agent drain" be the preStop command of the application's
container, or end the application after the sidecar has drained.

Exit status: 0 drained, 1 could not start, 2 wrong flags, 3 ended by force.`

const agentExample = `  moonsail agent --name reviews-v1-1 --namespace shop --ip 127.0.10.3 --labels app=reviews,version=v1
  moonsail agent --pod pods.yaml --name reviews-v1-1 --xds-address 127.0.0.1:15010
  moonsail agent --pod pod.yaml --xds-plaintext=false --xds-address localhost:15012 --xds-root-cert root-cert.pem --token-file token
  moonsail agent --type router --name edge-1 --namespace edge --ip 127.0.10.9 --labels istio=ingressgateway
  moonsail agent --pod pod.yaml --print-bootstrap`

// NewAgentCommand is `moonsail agent`: one sidecar, or one router.
func NewAgentCommand() *cobra.Command {
	f := &agentFlags{}
	cmd := &cobra.Command{
		Use:     "agent",
		Short:   "Run a sidecar or a gateway: Envoy, configured by the control plane",
		Long:    agentLong,
		Example: agentExample,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	f.workloadFlags(cmd)
	f.proxyFlags(cmd)
	f.identityFlags(cmd)
	f.addressFlags(cmd)
	f.intercept.addTo(cmd)
	cmd.Flags().StringVar(&f.podInfo, "pod-info", "", "`folder` with the pod's labels and annotations, as the kubelet writes them (a downwardAPI volume)")
	terminal.EnvFlags(cmd)
	cmd.AddCommand(newAgentDrainCommand(), newAgentInterceptCommand(), newAgentWaitCommand())
	return cmd
}

func (f *agentFlags) run(cmd *cobra.Command) error {
	c, err := f.build(cmd, os.Environ())
	if err != nil {
		return err
	}
	if f.print {
		bootstrap, err := agent.Bootstrap(*c)
		if err != nil {
			return wrongConfig(err)
		}
		_, err = cmd.OutOrStdout().Write(bootstrap)
		return err
	}
	ctx, cancel := context.WithCancel(cmd.Context())
	defer cancel()
	defer handleSignals(c, cancel)()
	if err := agent.Run(ctx, *c); errors.Is(err, agent.ErrForced) {
		return exitForced
	} else if err != nil {
		return wrongConfig(err)
	}
	return nil
}

// handleSignals: the first SIGTERM or SIGINT drains, the second aborts, others go to
// Envoy. The returned function gives the signals back and ends the goroutine.
func handleSignals(c *agent.Config, drain context.CancelFunc) (release func()) {
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
