package serve

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/moonsail/moonsail/internal/controlplane"
	"github.com/moonsail/moonsail/internal/controlplane/debug"
	"github.com/moonsail/moonsail/internal/controlplane/webhook"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/security/debugauth"
	"github.com/moonsail/moonsail/internal/security/workloadapi"
	"github.com/moonsail/moonsail/internal/sidecar/inject"
	"github.com/moonsail/moonsail/internal/terminal"
)

// check checks the flags, and completes the options, before anything starts.
func (f *flags) check() error {
	cluster, err := f.cluster.Choose("--config", f.options.ConfigDir != "")
	if err != nil {
		return err
	}
	f.options.Kubernetes = cluster
	if err := f.checkValues(); err != nil {
		return terminal.UsageError{Err: err}
	}
	if err := f.checkAccess(); err != nil {
		return terminal.UsageError{Err: err}
	}
	if err := errors.Join(f.checkWebhook(), f.checkIdentity(), f.checkPeers()); err != nil {
		return terminal.UsageError{Err: err}
	}
	if cluster != nil {
		return nil
	}
	return checkDir(f.options.ConfigDir)
}

func (f *flags) checkValues() error {
	o := &f.options
	switch {
	case o.XDSPlaintextAddr == "" && o.Identity.Addr == "":
		return errors.New("no address for proxies: give --xds-addr, for example :15012, or --xds-plaintext-addr 127.0.0.1:15010")
	case !slices.Contains(routeStrategies, f.strategy):
		return fmt.Errorf("--route-strategy %q: unknown strategy: use auto, rds, vhds or scoped", f.strategy)
	case !slices.Contains(model.Deliveries, string(f.mesh.Delivery)):
		return fmt.Errorf("--outbound %q: unknown delivery: use full, on-demand or auto", f.mesh.Delivery)
	case f.mesh.OnDemandFrom < 1:
		return fmt.Errorf("--on-demand-from %d: not a number of services: use 1 or more", f.mesh.OnDemandFrom)
	case !slices.Contains(transports, f.transport):
		return fmt.Errorf("--xds-transport %q: unknown transport: use grpc or http2", f.transport)
	case f.profiling.MutexFraction < 0:
		return errors.New("--profile-mutex: negative: use 0 for none")
	case f.profiling.BlockRate < 0:
		return errors.New("--profile-block: negative: use 0 for none")
	case o.SampleInUse < 0:
		return errors.New("--sample-in-use: negative: use 0 for never")
	case o.Dependencies.File != "" && f.options.Kubernetes != nil:
		return errors.New("--dependencies-file: is for --config: with Kubernetes as the source, a ConfigMap keeps dependencies")
	case o.Dependencies.File != "" && !o.Dependencies.Learn:
		return errors.New("--dependencies-file: needs --learn-dependencies")
	case o.Heartbeat < 0:
		return errors.New("--heartbeat: negative: use 0 for never")
	}
	return nil
}

// checkAccess refuses to serve debug pages on a network without credentials.
func (f *flags) checkAccess() error {
	o := &f.options
	if f.scrape {
		o.HTTPAccess.Open = debug.Scrapeable
	}
	if err := o.HTTPAccess.Check(); err != nil {
		return err
	}
	if o.HTTPAddr == "" || !debugauth.Reachable(o.HTTPAddr) || o.HTTPAccess.Credentials() || f.scrape {
		return nil
	}
	return fmt.Errorf("--http-addr %s: other machines can reach it, and it serves the whole configuration: "+
		"give --http-token-file or --http-client-ca, or --http-scrape to serve them only /metrics, /ready and /version", o.HTTPAddr)
}

// checkWebhook checks the flags of statuses and webhooks, and completes the webhook's options.
func (f *flags) checkWebhook() error {
	o, w := &f.options, &f.options.Webhook
	switch {
	case o.Status && o.Kubernetes == nil:
		return errors.New("--status: files have no status: leave it out with --config")
	case w.Addr == "" && (w.CertFile != "" || w.KeyFile != "" || w.Config != "" || w.ClientCA != ""):
		return errors.New("--webhook-cert, --webhook-key, --webhook-client-ca, --webhook-config: no webhook to configure: give --webhook-addr too")
	case (w.CertFile == "") != (w.KeyFile == ""):
		return errors.New("--webhook-cert, --webhook-key: one is missing: give both")
	case w.Config != "" && w.CertFile != "":
		return errors.New("--webhook-config: not allowed with --webhook-cert: the issuer of that certificate sets the CA of the webhook's configuration")
	case w.Config != "" && o.Kubernetes == nil:
		return errors.New("--webhook-config: needs a cluster: leave it out with --config")
	}
	if err := f.inject.into(w, o.Kubernetes != nil); err != nil {
		return err
	}
	switch {
	case !o.DeployGateways:
	case !o.Status:
		return errors.New("--deploy-gateways: only the writer of statuses deploys gateways: give --status too")
	case !f.inject.on:
		return errors.New("--deploy-gateways: injection is off, which makes the Pods: give --inject too")
	}
	service := "moonsail." + f.mesh.RootNamespace
	w.Names = []string{"127.0.0.1", "::1", "localhost", service, service + ".svc", service + ".svc." + f.mesh.Domain}
	return nil
}

// into adds injection to the webhook's options. The flags of the webhook itself are valid.
func (f *injectFlags) into(o *webhook.Options, cluster bool) error {
	switch {
	case !f.on && (f.file != "" || f.config != ""):
		return errors.New("--inject-config, --inject-webhook-config: injection is off: give --inject too")
	case !f.on:
		return nil
	case o.Addr == "":
		return errors.New("--inject: no webhook to serve it: give --webhook-addr too")
	case f.config != "" && o.CertFile != "":
		return errors.New("--inject-webhook-config: not allowed with --webhook-cert: the issuer of that certificate sets the CA of the webhook's configuration")
	case f.config != "" && !cluster:
		return errors.New("--inject-webhook-config: needs a cluster: leave it out with --config")
	}
	o.InjectConfig, o.Inject = f.config, inject.Default()
	if f.file == "" {
		return o.Inject.Prepare()
	}
	text, err := os.ReadFile(f.file)
	if err != nil {
		return fmt.Errorf("--inject-config: %w", err)
	}
	o.Inject, err = inject.Load(text)
	return err
}

// certNamesOf records whether a flag or a variable sets the names of the certificate. It drops names from istiod's variable if
// the control plane issues no certificate, because istiod's Deployment may set the variable for another reason.
func (f *flags) certNamesOf(fs *pflag.FlagSet) {
	f.certNames = "--" + certNamesFlag
	variable, o := terminal.SetBy(fs.Lookup(certNamesFlag)), &f.options.Identity
	if variable != "" {
		f.certNames = "environment variable " + variable
	}
	if variable == istiodFlags[certNamesFlag] && (o.Addr == "" || o.External != (controlplane.ExternalAuthority{})) {
		o.Names = nil
	}
}

// checkIdentity checks the flags of the certificate authority, and completes its directory.
func (f *flags) checkIdentity() error {
	o := &f.options.Identity
	switch {
	case o.Addr == "" && (len(o.Names) > 0 || o.CADir != "" || o.TokenFile != "" || o.External != controlplane.ExternalAuthority{}):
		return errors.New("--xds-cert-names, --ca-dir, --token-auth-file, --xds-cert, --workload-api: no port with TLS: give --xds-addr too, for example :15012")
	case o.TTL <= 0 || o.MaxTTL <= 0:
		return errors.New("--workload-cert-ttl, --max-workload-cert-ttl: must be longer than 0")
	case o.TTL > o.MaxTTL:
		return fmt.Errorf("--workload-cert-ttl %s: longer than --max-workload-cert-ttl (%s): shorten it", o.TTL, o.MaxTTL)
	}
	for _, n := range o.Names {
		if net.ParseIP(n) == nil && !isDNSName(n) {
			return fmt.Errorf("%s: %q: neither a DNS name nor an IP address", f.certNames, n)
		}
	}
	if o.External != (controlplane.ExternalAuthority{}) {
		return checkExternal(o)
	}
	if o.Addr == "" || o.CADir != "" || f.options.Kubernetes != nil {
		return nil
	}
	dir, err := defaultCADir()
	o.CADir = dir
	return err
}

// checkExternal checks the flags of an external authority.
func checkExternal(o *controlplane.Identity) error {
	e, files := &o.External, 0
	for _, file := range []string{e.CertFile, e.KeyFile, e.RootFile} {
		if file != "" {
			files++
		}
	}
	switch {
	case files > 0 && e.WorkloadAPI != "":
		return errors.New("--workload-api and --xds-cert: two sources of one certificate: give one")
	case files > 0 && files < 3:
		return errors.New("--xds-cert, --xds-key, --xds-root-cert: one is missing: give all three")
	case o.CADir != "" || len(o.Names) > 0 || o.TokenFile != "":
		return errors.New("--ca-dir, --xds-cert-names, --token-auth-file: the control plane issues no certificates with --xds-cert or --workload-api: leave them out")
	case e.WorkloadAPI != "":
		if err := workloadapi.Check(e.WorkloadAPI); err != nil {
			return fmt.Errorf("--workload-api: %w", err)
		}
	}
	return nil
}

// isDNSName reports whether a certificate may have the name. Its first label may be a *.
func isDNSName(s string) bool {
	for i, label := range strings.Split(s, ".") {
		if label == "*" && i == 0 && len(s) > 1 {
			continue
		}
		if label == "" || len(label) > 63 || strings.Trim(label, "-") != label || strings.ContainsFunc(label, func(r rune) bool {
			return r != '-' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
		}) {
			return false
		}
	}
	return len(s) <= 253
}

// defaultCADir returns the directory of this user's authority, by the XDG base directories.
func defaultCADir() (string, error) {
	state := os.Getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(state) {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("no directory for the certificate authority: %w: set --ca-dir", err)
		}
		state = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(state, "moonsail", "ca"), nil
}

// checkPeers checks the addresses of --peer.
func (f *flags) checkPeers() error {
	for _, a := range f.options.Replicas.Addresses {
		host, port, err := net.SplitHostPort(a)
		if err != nil || host == "" {
			return fmt.Errorf("--peer %q: not an address: use host:port", a)
		}
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return fmt.Errorf("--peer %q: invalid port: use 1 to 65535", a)
		}
		if net.ParseIP(host) == nil && !isDNSName(host) {
			return fmt.Errorf("--peer %q: neither a DNS name nor an IP address", host)
		}
	}
	return nil
}

func checkDir(dir string) error {
	where := "--config " + dir
	switch info, err := os.Stat(dir); {
	case errors.Is(err, fs.ErrNotExist):
		return &terminal.UserError{What: "no such directory", Where: where, Next: "create it, or name another"}
	case err != nil:
		return &terminal.UserError{Where: where, Err: err}
	case !info.IsDir():
		return &terminal.UserError{What: "not a directory", Where: where, Next: "name the directory that contains the file"}
	}
	return nil
}

// explain adds the next step to an error of the control plane.
func explain(err error) error {
	var address *net.AddrError
	switch {
	case errors.As(err, &address):
		return &terminal.UserError{Err: err, Next: "write it as HOST:PORT or :PORT, for example 127.0.0.1:15010"}
	case errors.Is(err, syscall.EADDRINUSE):
		return &terminal.UserError{Err: err, Next: "end the process that listens there, perhaps another control plane, or choose another address"}
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EADDRNOTAVAIL):
		return &terminal.UserError{Err: err, Next: "choose an address of this machine on which this user may listen"}
	}
	return err
}

// prometheusURL parses --prometheus.
func prometheusURL(text string) (*url.URL, error) {
	if text == "" {
		return nil, nil
	}
	at, err := url.Parse(text)
	if err != nil || at.Scheme != "http" && at.Scheme != "https" || at.Host == "" {
		return nil, errors.New("--prometheus: not the URL of a server: use http://HOST:9090, with TLS https://HOST") // the URL may have a password
	}
	return at, nil
}
