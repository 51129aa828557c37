package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/agent"
	"github.com/moonsail/moonsail/internal/agent/identity"
	"github.com/moonsail/moonsail/internal/envoy"
	"github.com/moonsail/moonsail/internal/model"
)

// exitForced: connections may have been cut.
const exitForced ExitCode = 3

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

const agentExample = `  moonsail agent --name reviews-v1-1 --namespace shop --ip 127.0.10.3 --labels app=reviews,version=v1
  moonsail agent --pod pods.yaml --name reviews-v1-1 --xds-address 127.0.0.1:15010
  moonsail agent --pod pod.yaml --xds-plaintext=false --xds-address localhost:15012 --xds-root-cert root-cert.pem --token-file token
  moonsail agent --type router --name edge-1 --namespace edge --ip 127.0.10.9 --labels istio=ingressgateway
  moonsail agent --pod pod.yaml --print-bootstrap`

// NewAgentCommand is `moonsail agent`: one sidecar, or one router.
func NewAgentCommand() *cobra.Command {
	f := &agentFlags{}
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Run a sidecar or a gateway: Envoy, configured by the control plane",
		Long: `Runs a sidecar for one workload: writes Envoy's bootstrap, starts Envoy, starts it
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
interface listens on 127.0.0.1 and the other ports on all addresses.

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

Exit status: 0 drained, 1 could not start, 2 wrong flags, 3 ended by force.`,
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
	EnvFlags(cmd)
	cmd.AddCommand(newAgentDrainCommand(), newAgentInterceptCommand(), newAgentWaitCommand())
	return cmd
}

func (f *agentFlags) workloadFlags(cmd *cobra.Command) {
	fs, w, c := cmd.Flags(), &f.workload, &f.config
	fs.StringVar((*string)(&c.Type), "type", string(model.ProxySidecar), "sidecar, or router: a gateway")
	fs.StringVar(&f.pod, "pod", "", "YAML `file` with the workload's Kubernetes Pod; with several Pods, --name chooses")
	fs.StringVar(&w.Name, "name", "", "the workload's (pod's) name")
	fs.StringVar(&w.Namespace, "namespace", "", `its namespace (default "default")`)
	fs.StringSliceVar(&w.IPs, "ip", nil, "its IP addresses, the first is the node's")
	fs.StringToStringVar(&w.Labels, "labels", nil, "its labels")
	fs.StringVar(&w.ServiceAccount, "service-account", "", `its service account (default "default")`)
	fs.StringVar(&w.WorkloadName, "workload-name", "", "name of its Deployment or the like")
	fs.StringVar(&w.Owner, "owner", "", "its owner, as kubernetes://apis/apps/v1/namespaces/NS/deployments/NAME")
	fs.StringVar(&w.NodeName, "node-name", "", "name of the Kubernetes node")
	fs.StringVar(&f.locality, "locality", "", "where it runs, as region/zone/subzone (default: from its labels)")
	fs.StringVar(&c.ClusterID, "cluster-id", "", `the cluster's id (default "Kubernetes")`)
	fs.StringVar(&c.MeshID, "mesh-id", "", `the mesh's id (default "cluster.local")`)
	fs.StringVar(&c.Network, "network", "", "the network it is in")
	fs.StringVar(&c.Domain, "domain", "", `the cluster's DNS domain (default "cluster.local")`)
	fs.StringVar(&f.interception, "interception-mode", "", "how its traffic gets to Envoy: REDIRECT, TPROXY or NONE (default: annotation sidecar.istio.io/interceptionMode, else REDIRECT)")

	EnvFlag(cmd, "name", "POD_NAME")
	EnvFlag(cmd, "namespace", "POD_NAMESPACE")
	EnvFlag(cmd, "ip", "INSTANCE_IP")
	EnvFlag(cmd, "service-account", "SERVICE_ACCOUNT")
	EnvFlag(cmd, "workload-name", "ISTIO_META_WORKLOAD_NAME")
	EnvFlag(cmd, "owner", "ISTIO_META_OWNER")
	EnvFlag(cmd, "node-name", "ISTIO_META_NODE_NAME")
	EnvFlag(cmd, "cluster-id", "ISTIO_META_CLUSTER_ID")
	EnvFlag(cmd, "mesh-id", "ISTIO_META_MESH_ID")
	EnvFlag(cmd, "network", "ISTIO_META_NETWORK")
	EnvFlag(cmd, "interception-mode", "ISTIO_META_INTERCEPTION_MODE")
}

func (f *agentFlags) proxyFlags(cmd *cobra.Command) {
	fs, c := cmd.Flags(), &f.config
	fs.StringVar(&c.XDS.Address, "xds-address", agent.DefaultXDSAddress, "the control plane, as host:port or unix:///path")
	fs.BoolVar(&c.XDS.Plaintext, "xds-plaintext", true, "talk to the control plane without TLS")
	fs.StringVar(&c.XDS.RootCert, "xds-root-cert", "", "`file` with the roots of the mesh, which the control plane's and the CA's certificates are checked by (default "+agent.DefaultRootCert+")")
	fs.StringVar(&c.XDS.ServerName, "xds-server-name", "", "the name in the control plane's certificate (default: the host of --xds-address)")
	fs.StringVar(&f.proxyConfig, "proxy-config", "", "Istio's ProxyConfig, as YAML")
	fs.IntVar(&f.concurrency, "concurrency", agent.DefaultConcurrency, "Envoy's worker threads; 0: one a core (default: of annotation or --proxy-config, else the whole CPUs of the CPU limit, else 2)")
	fs.Lookup("concurrency").DefValue = "0" // the text says it
	fs.DurationVar(&f.drainTime, "drain-time", agent.DefaultDrainTime, "how long connections may last after the first signal")
	fs.DurationVar(&f.leaveTimeout, "leave-timeout", agent.DefaultLeaveTimeout, "how long to wait, before the drain, for every proxy to know that this workload leaves; 0: nobody is told")
	fs.DurationVar(&c.MinDrain, "min-drain-time", 0, "drain at least that long, even without connections")
	fs.StringVar(&c.EnvoyPath, "envoy", "", "Envoy's `path` (default: see `moonsail envoy which`)")
	fs.StringVar(&c.LogLevel, "proxy-log-level", "", "Envoy's log level: trace, debug, info, warning, error, critical, off (default: annotation sidecar.istio.io/logLevel, else warning)")
	fs.StringVar(&c.ComponentLogLevel, "proxy-component-log-level", "", "Envoy's log levels by component (default: annotation sidecar.istio.io/componentLogLevel, else misc:error)")
	fs.StringVar(&f.logLevel, "log-level", "info", "the agent's log level: debug, info, warn, error")
	fs.StringVar(&f.logFormat, "log-format", "text", "form of the log: text or json")
	fs.StringVar(&c.WorkDir, "work-dir", "", "`folder` for Envoy's bootstrap (default: a temporary one)")
	fs.DurationVar(&c.BootstrapTimeout, "bootstrap-timeout", agent.DefaultBootstrapTimeout, "how long to wait, before Envoy starts, for the control plane to say what EnvoyFilters (applyTo: BOOTSTRAP) change of its bootstrap; 0: it is not asked")
	fs.StringVar(&c.WasmCacheDir, "wasm-cache-dir", "", "`folder` for modules of WasmPlugins that were fetched (default: in --work-dir)")
	fs.BoolVar(&f.print, "print-bootstrap", false, "print Envoy's bootstrap and exit")

	EnvFlag(cmd, "proxy-config", "PROXY_CONFIG")
	EnvFlag(cmd, "min-drain-time", "MINIMUM_DRAIN_DURATION")
	EnvFlag(cmd, "envoy", envoy.PathVariable)
}

func (f *agentFlags) identityFlags(cmd *cobra.Command) {
	fs, c := cmd.Flags(), &f.config.CA
	fs.StringVar(&c.Address, "ca-address", "", "who issues the workload's certificate, as host:port with TLS or unix:///path; none: it gets none (default: the control plane, if it is reached with TLS)")
	fs.StringVar(&c.TokenFile, "token-file", agent.DefaultTokenFile, "`file` with the token that tells the CA who this is")
	fs.DurationVar(&c.TTL, "cert-ttl", identity.DefaultTTL, "how long certificates are to be good")
	fs.Float64Var(&c.GraceRatio, "cert-grace-period-ratio", identity.DefaultGraceRatio, "the part of a certificate's life that is left when it is renewed")
	fs.IntVar(&c.RSABits, "rsa-key-size", 0, "use RSA keys of so many bits (default: ECDSA P-256)")
	fs.StringVar(&c.TrustDomain, "trust-domain", "", `the trust domain that is asked for (default "cluster.local"); the CA decides`)
	fs.StringVar(&c.MountedCerts, "mounted-certs", "", "take certificates from this `folder` (cert-chain.pem, key.pem, root-cert.pem), which somebody else renews, and not from a CA (default: "+agent.MountedCertsDir+" where FILE_MOUNTED_CERTS is true, else a CA)")
	fs.StringVar(&c.OutputCerts, "output-certs", "", "write certificates into this `folder`, too, for others to use (default: the key is never written)")

	EnvFlag(cmd, "xds-server-name", "ISTIOD_SAN")
	EnvFlag(cmd, "xds-root-cert", "XDS_ROOT_CA")
	EnvFlag(cmd, "ca-address", "CA_ADDR")
	EnvFlag(cmd, "cert-ttl", "SECRET_TTL")
	EnvFlag(cmd, "cert-grace-period-ratio", "SECRET_GRACE_PERIOD_RATIO")
	EnvFlag(cmd, "trust-domain", "TRUST_DOMAIN")
	EnvFlag(cmd, "output-certs", "OUTPUT_CERTS")
}

func (f *agentFlags) addressFlags(cmd *cobra.Command) {
	fs, c := cmd.Flags(), &f.config
	fs.StringVar(&c.BindAddress, "bind-address", "", "where the ports below but admin listen (default: the workload's IP if loopback, else any)")
	fs.StringVar(&c.AdminAddress, "admin-address", "", "where Envoy's admin interface listens (default: the workload's IP if loopback, else 127.0.0.1)")
	fs.Uint16Var(&c.Ports.Admin, "admin-port", 0, fmt.Sprintf("Envoy's admin interface (default %d)", agent.DefaultAdminPort))
	fs.Uint16Var(&c.Ports.Status, "status-port", 0, fmt.Sprintf("merged metrics: /stats/prometheus (default %d)", agent.DefaultStatusPort))
	fs.StringVar(&c.DebugTokenFile, "debug-token-file", "", "`file` of bearer tokens, one a line, that open /debug/ at the status port beyond this host or pod (default: nobody is let in from there)")
	fs.Uint16Var(&c.Ports.Health, "health-port", 0, fmt.Sprintf("readiness: /healthz/ready (default %d)", agent.DefaultHealthPort))
	fs.Uint16Var(&c.Ports.Prometheus, "prometheus-port", 0, fmt.Sprintf("Envoy's own metrics: /stats/prometheus (default %d)", agent.DefaultPrometheusPort))
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

// wrongConfig makes what flags, or what stands for them, say wrongly a usage error.
func wrongConfig(err error) error {
	var wrong agent.ConfigError
	if errors.As(err, &wrong) {
		return usageError{err}
	}
	return err
}

// build makes the Config of flags, pod description and environment.
func (f *agentFlags) build(cmd *cobra.Command, environ []string) (*agent.Config, error) {
	c := f.config
	metadata, labels, err := agent.MetadataFromEnv(environ)
	if err != nil {
		return nil, err
	}
	for _, taken := range metadataFlags {
		delete(metadata, taken) // a flag holds it, and may have been given another value
	}
	c.Metadata = metadata
	c.Workload = f.workload
	if f.pod != "" {
		if c.Workload, err = agent.ReadPod(f.pod, f.workload.Name); err != nil {
			return nil, err
		}
		overrideWorkload(&c.Workload, &f.workload)
	}
	if len(c.Workload.Labels) == 0 {
		c.Workload.Labels = labels
	}
	if f.podInfo != "" {
		if err := c.Workload.ReadPodInfo(f.podInfo); err != nil {
			return nil, err
		}
	}
	if f.locality != "" {
		if strings.Count(f.locality, "/") > 2 {
			return nil, usageError{fmt.Errorf("--locality %q has more than three parts: write region/zone/subzone, or less of it", f.locality)}
		}
		c.Workload.Locality = model.ParseLocality(f.locality)
	}
	c.Interception = model.Interception(f.interception)
	if f.proxyConfig != "" {
		if c.ProxyConfig, err = agent.ParseProxyConfig(f.proxyConfig, "--proxy-config (PROXY_CONFIG)"); err != nil {
			return nil, usageError{err}
		}
	}
	if c.CA.MountedCerts == "" {
		if c.CA.MountedCerts, err = agent.FindMountedCerts(environ); err != nil {
			return nil, err
		}
	}
	if c.CPULimit, err = agent.FindCPULimit(environ); err != nil {
		return nil, err
	}
	if c.AppMetrics, err = agent.FindAppMetrics(environ, c.Workload.Annotations); err != nil {
		return nil, err
	}
	if cmd.Flags().Changed("concurrency") {
		c.Concurrency = &f.concurrency
	}
	if cmd.Flags().Changed("drain-time") {
		c.DrainTime = &f.drainTime
	}
	c.LeaveTimeout = &f.leaveTimeout
	if err := f.intercept.into(cmd, &c); err != nil {
		return nil, err
	}
	c.AccessLog = cmd.OutOrStdout()
	c.Log, err = f.logger(cmd, c.Workload)
	return &c, err
}

// metadataFlags are the ISTIO_META_ variables that flags take their values from.
var metadataFlags = []string{"WORKLOAD_NAME", "OWNER", "NODE_NAME", "CLUSTER_ID", "MESH_ID", "NETWORK", "INTERCEPTION_MODE"}

// overrideWorkload lets what flags said beat the pod description.
func overrideWorkload(w, flags *agent.Workload) {
	for _, s := range []struct{ into, from *string }{
		{&w.Namespace, &flags.Namespace}, {&w.ServiceAccount, &flags.ServiceAccount},
		{&w.WorkloadName, &flags.WorkloadName}, {&w.Owner, &flags.Owner}, {&w.NodeName, &flags.NodeName},
	} {
		if *s.from != "" {
			*s.into = *s.from
		}
	}
	if len(flags.IPs) > 0 {
		w.IPs = flags.IPs
	}
	if len(flags.Labels) > 0 {
		w.Labels = flags.Labels
	}
}

// logger names the sidecar in each record: many may share a terminal.
func (f *agentFlags) logger(cmd *cobra.Command, w agent.Workload) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(f.logLevel)); err != nil {
		return nil, usageError{fmt.Errorf("--log-level %q is none of debug, info, warn, error", f.logLevel)}
	}
	options := &slog.HandlerOptions{Level: level}
	var handler slog.Handler
	switch f.logFormat {
	case "text":
		handler = slog.NewTextHandler(cmd.ErrOrStderr(), options)
	case "json":
		handler = slog.NewJSONHandler(cmd.ErrOrStderr(), options)
	default:
		return nil, usageError{fmt.Errorf("--log-format %q is none of text, json", f.logFormat)}
	}
	return slog.New(handler).With("sidecar", w.Name), nil
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
