package agent

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/model"
	sidecar "github.com/moonsail/moonsail/internal/sidecar/agent"
	"github.com/moonsail/moonsail/internal/sidecar/agent/identity"
	"github.com/moonsail/moonsail/internal/sidecar/envoy"
	"github.com/moonsail/moonsail/internal/terminal"
)

// variables lists the flags that Istio's environment variables set. Other flags have variables of their own, named by
// terminal.EnvFlags.
var variables = []struct{ flag, name string }{
	{"name", "POD_NAME"},
	{"namespace", "POD_NAMESPACE"},
	{"ip", "INSTANCE_IP"},
	{"service-account", "SERVICE_ACCOUNT"},
	{"workload-name", sidecar.MetadataPrefix + "WORKLOAD_NAME"},
	{"owner", sidecar.MetadataPrefix + "OWNER"},
	{"node-name", sidecar.MetadataPrefix + "NODE_NAME"},
	{"cluster-id", sidecar.MetadataPrefix + "CLUSTER_ID"},
	{"mesh-id", sidecar.MetadataPrefix + "MESH_ID"},
	{"network", sidecar.MetadataPrefix + "NETWORK"},
	{modeFlag, sidecar.MetadataPrefix + "INTERCEPTION_MODE"},
	{"proxy-config", "PROXY_CONFIG"},
	{"min-drain-time", "MINIMUM_DRAIN_DURATION"},
	{"exit-on-zero-active-connections", "EXIT_ON_ZERO_ACTIVE_CONNECTIONS"},
	{"envoy", envoy.PathVariable},
	{"xds-server-name", "ISTIOD_SAN"},
	{"xds-root-cert", "XDS_ROOT_CA"},
	{"ca-address", "CA_ADDR"},
	{"cert-ttl", "SECRET_TTL"},
	{"cert-grace-period-ratio", "SECRET_GRACE_PERIOD_RATIO"},
	{"trust-domain", "TRUST_DOMAIN"},
	{"output-certs", "OUTPUT_CERTS"},
}

// secondVariables lists the flags that Istio's environment variables set, unless Moonsail's variable does.
var secondVariables = []struct{ flag, name string }{
	{"health-port", "ENVOY_STATUS_PORT"},
	{"prometheus-port", "ENVOY_PROMETHEUS_PORT"},
	{"rsa-key-size", "WORKLOAD_RSA_KEY_SIZE"},
}

func (f *flags) addFlags(cmd *cobra.Command) {
	f.addWorkloadFlags(cmd)
	f.addProxyFlags(cmd)
	f.addIdentityFlags(cmd)
	f.addAddressFlags(cmd)
	f.logging.AddFlags(cmd)
	for _, v := range variables {
		terminal.EnvFlag(cmd, v.flag, v.name)
	}
	// Moonsail's variables of these flags precede Istio's: the injector sets some of them, and users may set the others.
	for _, v := range secondVariables {
		terminal.EnvFlag(cmd, v.flag, terminal.Variable(v.flag), v.name)
	}
	f.intercept.addTo(cmd)
	terminal.EnvFlags(cmd)
}

func (f *flags) addWorkloadFlags(cmd *cobra.Command) {
	fs, w, c := cmd.Flags(), &f.workload, &f.config
	fs.StringVar((*string)(&c.Type), "type", string(model.ProxySidecar), "`TYPE` of the proxy: sidecar, or router for a gateway")
	fs.StringVar(&f.pod, "pod", "", "YAML `FILE` with the workload's Pod; --name chooses one of several")
	fs.StringVar(&f.podInfo, "pod-info", "", "`DIR` with the Pod's labels and annotations, as the kubelet writes them (a downwardAPI volume)")
	fs.StringVar(&w.Name, "name", "", "`NAME` of the workload or Pod")
	fs.StringVar(&w.Namespace, "namespace", "", "`NAMESPACE` of the workload (default \"default\")")
	fs.StringSliceVar(&w.IPs, "ip", nil, "IP `ADDRESSES` of the workload; the first one is in the node id")
	fs.StringToStringVar(&w.Labels, "labels", nil, "`LABELS` of the workload, as KEY=VALUE,...")
	fs.StringVar(&w.ServiceAccount, "service-account", "", "service `ACCOUNT` of the workload (default \"default\")")
	fs.StringVar(&w.WorkloadName, "workload-name", "", "`NAME` of the Deployment or other owner")
	fs.StringVar(&w.Owner, "owner", "", "`URL` of the owner: kubernetes://apis/apps/v1/namespaces/NS/deployments/NAME")
	fs.StringVar(&w.NodeName, "node-name", "", "`NAME` of the Kubernetes node")
	fs.StringVar(&f.locality, "locality", "", "`LOCALITY` as region/zone/subzone (default: from the labels)")
	fs.StringVar(&c.ClusterID, "cluster-id", "", "`ID` of the cluster (default \"Kubernetes\")")
	fs.StringVar(&c.MeshID, "mesh-id", "", "`ID` of the mesh (default \"cluster.local\")")
	fs.StringVar(&c.Network, "network", "", "`NETWORK` of the workload")
	fs.StringVar(&c.Domain, "domain", "", "DNS `DOMAIN` of the cluster (default \"cluster.local\")")
	fs.StringVar(&f.interception, modeFlag, "", "`MODE` of interception: REDIRECT, TPROXY or NONE (default: annotation sidecar.istio.io/interceptionMode, else REDIRECT)")

	terminal.Offer(cmd, "type", string(model.ProxySidecar), string(model.ProxyRouter))
	terminal.Offer(cmd, modeFlag, string(model.InterceptRedirect), string(model.InterceptTProxy), string(model.InterceptNone))
}

func (f *flags) addProxyFlags(cmd *cobra.Command) {
	fs, c := cmd.Flags(), &f.config
	fs.StringVar(&c.XDS.Address, "xds-address", sidecar.DefaultXDSAddress, "`ADDR` of the control plane, as host:port or unix:///path")
	fs.BoolVar(&c.XDS.Plaintext, "xds-plaintext", true, "connect to the control plane without TLS")
	fs.StringVar(&c.XDS.RootCert, "xds-root-cert", "", "`FILE` with the mesh's root certificates, which verify the control plane and the CA (default "+sidecar.DefaultRootCert+")")
	fs.StringVar(&c.XDS.ServerName, "xds-server-name", "", "`NAME` in the control plane's certificate (default: the host of --xds-address)")
	fs.StringVar(&f.proxyConfig, "proxy-config", "", "Istio's ProxyConfig as `YAML`")
	fs.IntVar(&f.concurrency, "concurrency", sidecar.DefaultConcurrency, "number of Envoy's worker threads; 0: one per core (default: from the annotation or --proxy-config, else the whole CPUs of the CPU limit, else 2)")
	fs.Lookup("concurrency").DefValue = "0" // the help text describes the default
	fs.DurationVar(&f.drainTime, "drain-time", sidecar.DefaultDrainTime, "maximum time for connections to end after the first signal")
	fs.DurationVar(&f.leaveTimeout, "leave-timeout", sidecar.DefaultLeaveTimeout, "maximum time to wait, before draining, until every proxy has ACKed the removal of this workload's endpoints; 0: do not deregister")
	fs.DurationVar(&c.MinDrain, "min-drain-time", 0, "minimum time to drain, even without connections")
	fs.BoolVar(&f.earlyEnd, "exit-on-zero-active-connections", true, "end the drain when no connection is left; false: drain for --drain-time, for an application that may end later")
	fs.StringVar(&c.EnvoyPath, "envoy", "", "`PATH` of Envoy (default: see 'moonsail envoy which')")
	fs.StringVar(&c.LogLevel, "proxy-log-level", "", "`LEVEL` of Envoy's log: trace, debug, info, warning, error, critical or off (default: annotation sidecar.istio.io/logLevel, else warning)")
	terminal.Offer(cmd, "proxy-log-level", envoy.LogLevels...)
	fs.StringVar(&c.ComponentLogLevel, "proxy-component-log-level", "", "`LEVELS` of single components of Envoy, for example rbac:debug (default: annotation sidecar.istio.io/componentLogLevel, else misc:error)")
	fs.StringVar(&c.WorkDir, "work-dir", "", "`DIR` for Envoy's bootstrap (default: a temporary one)")
	fs.DurationVar(&c.BootstrapTimeout, "bootstrap-timeout", sidecar.DefaultBootstrapTimeout, "maximum time to wait, before Envoy starts, for EnvoyFilters that patch its bootstrap; 0: start without them")
	fs.StringVar(&c.WasmCacheDir, "wasm-cache-dir", "", "`DIR` for fetched modules of WasmPlugins (default: in --work-dir)")
	fs.BoolVar(&c.FetchAllowLoopback, "fetch-allow-loopback", false, "allow WasmPlugins to name servers on this machine, for local development")
	fs.BoolVar(&f.print, "print-bootstrap", false, "print Envoy's bootstrap and exit")
}

func (f *flags) addIdentityFlags(cmd *cobra.Command) {
	fs, c := cmd.Flags(), &f.config.CA
	fs.StringVar(&c.Address, "ca-address", "", "`ADDR` of the CA, as host:port with TLS or unix:///path; none: no certificate (default: the control plane, if TLS reaches it)")
	fs.StringVar(&c.TokenFile, "token-file", sidecar.DefaultTokenFile, "`FILE` with the token that identifies the workload to the CA")
	fs.DurationVar(&c.TTL, "cert-ttl", identity.DefaultTTL, "lifetime of certificates to request")
	fs.Float64Var(&c.GraceRatio, "cert-grace-period-ratio", identity.DefaultGraceRatio, "fraction of a certificate's lifetime that is left when the agent renews it")
	fs.IntVar(&c.RSABits, "rsa-key-size", 0, "number of bits of an RSA key (default: an ECDSA P-256 key)")
	fs.StringVar(&c.TrustDomain, "trust-domain", "", "trust `DOMAIN` to request (default \"cluster.local\"); the CA decides")
	fs.StringVar(&c.MountedCerts, "mounted-certs", "", "`DIR` with certificates that another program renews (cert-chain.pem, key.pem, root-cert.pem), instead of a CA (default: "+sidecar.MountedCertsDir+" if FILE_MOUNTED_CERTS is true, else a CA)")
	fs.StringVar(&c.WorkloadAPI, "workload-api", "", "`ADDR` of the SPIFFE Workload API, for example of SPIRE's agent, as unix:///path, instead of a CA (default: unix://"+sidecar.WorkloadAPISocket+" if that socket exists)")
	fs.StringVar(&c.OutputCerts, "output-certs", "", "`DIR` to write certificates and keys to, for other programs; in Kubernetes every user may read them (default: they are never written)")
}

func (f *flags) addAddressFlags(cmd *cobra.Command) {
	fs, c := cmd.Flags(), &f.config
	fs.StringVar(&c.BindAddress, "bind-address", "", "`IP` address of all ports below except admin (default: the workload's IP if it is a loopback address, else all)")
	fs.StringVar(&c.AdminAddress, "admin-address", "", "`IP` address of Envoy's admin interface (default: the workload's IP if it is a loopback address, else 127.0.0.1)")
	fs.Uint16Var(&c.Ports.Admin, "admin-port", 0, fmt.Sprintf("port of Envoy's admin interface (default %d)", sidecar.DefaultAdminPort))
	fs.Uint16Var(&c.Ports.Status, "status-port", 0, fmt.Sprintf("port of merged metrics, /stats/prometheus (default %d)", sidecar.DefaultStatusPort))
	fs.StringVar(&c.DebugTokenFile, "debug-token-file", "", "`FILE` of bearer tokens, one per line, for access to /debug/ on the status port from other hosts (default: only this host or Pod has access)")
	fs.Uint16Var(&c.Ports.Health, "health-port", 0, fmt.Sprintf("port of readiness, /healthz/ready (default %d)", sidecar.DefaultHealthPort))
	fs.Uint16Var(&c.Ports.Prometheus, "prometheus-port", 0, fmt.Sprintf("port of Envoy's own metrics, /stats/prometheus (default %d)", sidecar.DefaultPrometheusPort))
}
