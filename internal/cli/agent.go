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

The workload is told by flags, by environment variables (Istio's names where it has
them), or by a Kubernetes Pod in a YAML file (--pod). ISTIO_META_X=v and
ISTIO_METAJSON_X={...} go into the node's metadata, as in Istio. The annotation
proxy.istio.io/config (concurrency, drainDuration, terminationDrainDuration,
proxyMetadata, proxyStatsMatcher...) beats $PROXY_CONFIG; a flag beats both. Where none
says how many worker threads Envoy has, it has one for each whole CPU of the CPU limit
($ISTIO_CPU_LIMIT, else cpu.max of the cgroup), and one at least; 2 without a limit.

With --type router it is a gateway: it listens where Gateways (networking.istio.io) say that select
its labels, and has no application behind it.

GET /stats/prometheus on the status port has the agent's metrics, Envoy's and the
application's: its annotations prometheus.io/scrape, port and path say where those are.

Addresses: if the workload's IP is a loopback address, everything listens there, so
each of many sidecars on one machine needs no more than an --ip of its own
(127.0.10.1, 127.0.10.2...: on Linux these need no set-up). Otherwise Envoy's admin
interface listens on 127.0.0.1 and the other ports on all addresses. Without interception
(--interception-mode NONE) an application calls services at 127.0.0.1 and their port: there all
sidecars of a machine listen, and any takes the call. An egress listener of a Sidecar, with
port and bind, has one listen at an address of its own.

Identity: with --xds-plaintext=false, --ca-address or --mounted-certs the workload has a
certificate. Its key is made in this process, and leaves it for Envoy only, over a Unix
socket. The CA knows the workload by the token in --token-file, which is read again each
time; certificates are renewed when half of their life is left (--cert-grace-period-ratio), without a connection cut, and
roots are taken up when --xds-root-cert changes. GET /debug/identity on the status port
says what there is, and what went wrong.

Signals: the first SIGTERM or SIGINT drains: readiness fails; the control plane takes the
calls away and says when every proxy has ACKed that; HTTP clients are told to go; and
the sidecar ends when no connection is left or after --drain-time. Where the control
plane cannot be reached, or some proxy does not ACK within --leave-timeout, the drain
takes at least --drain-time. A second signal ends it at once. SIGHUP and SIGUSR1
(reopen access logs) are passed to Envoy.

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
