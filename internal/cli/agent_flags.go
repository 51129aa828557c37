package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/sidecar/agent"
	"github.com/moonsail/moonsail/internal/sidecar/agent/identity"
	"github.com/moonsail/moonsail/internal/sidecar/envoy"
	"github.com/moonsail/moonsail/internal/terminal"
)

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

	terminal.Offer(cmd, "type", string(model.ProxySidecar), string(model.ProxyRouter))
	terminal.Offer(cmd, "interception-mode", string(model.InterceptRedirect), string(model.InterceptTProxy), string(model.InterceptNone))

	terminal.EnvFlag(cmd, "name", "POD_NAME")
	terminal.EnvFlag(cmd, "namespace", "POD_NAMESPACE")
	terminal.EnvFlag(cmd, "ip", "INSTANCE_IP")
	terminal.EnvFlag(cmd, "service-account", "SERVICE_ACCOUNT")
	terminal.EnvFlag(cmd, "workload-name", "ISTIO_META_WORKLOAD_NAME")
	terminal.EnvFlag(cmd, "owner", "ISTIO_META_OWNER")
	terminal.EnvFlag(cmd, "node-name", "ISTIO_META_NODE_NAME")
	terminal.EnvFlag(cmd, "cluster-id", "ISTIO_META_CLUSTER_ID")
	terminal.EnvFlag(cmd, "mesh-id", "ISTIO_META_MESH_ID")
	terminal.EnvFlag(cmd, "network", "ISTIO_META_NETWORK")
	terminal.EnvFlag(cmd, "interception-mode", "ISTIO_META_INTERCEPTION_MODE")
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
	fs.DurationVar(&f.leaveTimeout, "leave-timeout", agent.DefaultLeaveTimeout, "how long to wait, before the drain, until every proxy has ACKed the removal of this workload's endpoints; 0: skip that")
	fs.DurationVar(&c.MinDrain, "min-drain-time", 0, "drain at least that long, even without connections")
	fs.StringVar(&c.EnvoyPath, "envoy", "", "Envoy's `path` (default: see `moonsail envoy which`)")
	fs.StringVar(&c.LogLevel, "proxy-log-level", "", "Envoy's log level: trace, debug, info, warning, error, critical, off (default: annotation sidecar.istio.io/logLevel, else warning)")
	terminal.Offer(cmd, "proxy-log-level", envoyLevels...)
	fs.StringVar(&c.ComponentLogLevel, "proxy-component-log-level", "", "Envoy's log levels by component (default: annotation sidecar.istio.io/componentLogLevel, else misc:error)")
	fs.StringVar(&f.logLevel, "log-level", "info", "the agent's log level: debug, info, warn, error")
	fs.StringVar(&f.logFormat, "log-format", "text", "form of the log: text or json")
	fs.StringVar(&c.WorkDir, "work-dir", "", "`folder` for Envoy's bootstrap (default: a temporary one)")
	fs.DurationVar(&c.BootstrapTimeout, "bootstrap-timeout", agent.DefaultBootstrapTimeout, "how long to wait, before Envoy starts, for the control plane to say what EnvoyFilters (applyTo: BOOTSTRAP) change of its bootstrap; 0: it is not asked")
	fs.StringVar(&c.WasmCacheDir, "wasm-cache-dir", "", "`folder` for modules of WasmPlugins that were fetched (default: in --work-dir)")
	fs.BoolVar(&f.print, "print-bootstrap", false, "print Envoy's bootstrap and exit")

	terminal.EnvFlag(cmd, "proxy-config", "PROXY_CONFIG")
	terminal.EnvFlag(cmd, "min-drain-time", "MINIMUM_DRAIN_DURATION")
	terminal.EnvFlag(cmd, "envoy", envoy.PathVariable)
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

	terminal.EnvFlag(cmd, "xds-server-name", "ISTIOD_SAN")
	terminal.EnvFlag(cmd, "xds-root-cert", "XDS_ROOT_CA")
	terminal.EnvFlag(cmd, "ca-address", "CA_ADDR")
	terminal.EnvFlag(cmd, "cert-ttl", "SECRET_TTL")
	terminal.EnvFlag(cmd, "cert-grace-period-ratio", "SECRET_GRACE_PERIOD_RATIO")
	terminal.EnvFlag(cmd, "trust-domain", "TRUST_DOMAIN")
	terminal.EnvFlag(cmd, "output-certs", "OUTPUT_CERTS")
}

func (f *agentFlags) addressFlags(cmd *cobra.Command) {
	fs, c := cmd.Flags(), &f.config
	fs.StringVar(&c.BindAddress, "bind-address", "", "where the ports below but admin listen (default: the workload's IP if loopback, else any)")
	fs.StringVar(&c.AdminAddress, "admin-address", "", "where Envoy's admin interface listens (default: the workload's IP if loopback, else 127.0.0.1)")
	fs.Uint16Var(&c.Ports.Admin, "admin-port", 0, fmt.Sprintf("Envoy's admin interface (default %d)", agent.DefaultAdminPort))
	fs.Uint16Var(&c.Ports.Status, "status-port", 0, fmt.Sprintf("merged metrics: /stats/prometheus (default %d)", agent.DefaultStatusPort))
	fs.StringVar(&c.DebugTokenFile, "debug-token-file", "", "`file` of bearer tokens, one a line, that open /debug/ at the status port beyond this host or pod (default: only this host or pod may read them)")
	fs.Uint16Var(&c.Ports.Health, "health-port", 0, fmt.Sprintf("readiness: /healthz/ready (default %d)", agent.DefaultHealthPort))
	fs.Uint16Var(&c.Ports.Prometheus, "prometheus-port", 0, fmt.Sprintf("Envoy's own metrics: /stats/prometheus (default %d)", agent.DefaultPrometheusPort))
}
