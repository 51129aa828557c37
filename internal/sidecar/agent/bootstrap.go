package agent

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"

	"github.com/moonsail/moonsail/internal/sidecar/agent/bootstrap"
	"github.com/moonsail/moonsail/internal/sidecar/agent/bootstrappatch"
	"github.com/moonsail/moonsail/internal/sidecar/agent/scrape"
	"github.com/moonsail/moonsail/internal/sidecar/agent/sds"
	"github.com/moonsail/moonsail/internal/sidecar/envoy"
	"github.com/moonsail/moonsail/internal/xds/agentapi"
)

// Bootstrap returns the JSON of Envoy's bootstrap for a configuration, without patches of EnvoyFilters.
func Bootstrap(c Config) ([]byte, error) {
	s, err := c.resolve()
	if err != nil {
		return nil, err
	}
	s.workDir = cmp.Or(s.WorkDir, filepath.Join(os.TempDir(), "moonsail-agent"))
	s.enableSDS()
	return s.bootstrapOptions().JSON()
}

// bootstrapOptions are the settings that the bootstrap depends on.
func (s *settings) bootstrapOptions() *bootstrap.Options {
	o := &bootstrap.Options{
		Node: s.node, IPs: s.Workload.IPs, Annotations: s.Workload.Annotations, ProxyConfig: s.proxyConfig,
		Bind: s.bind, PrometheusPort: s.ports.Prometheus,
		AdminHost: s.adminHost, AdminPort: s.ports.Admin,
		StatusHost: s.statusHost(), StatusPort: s.ports.Status, MetricsPath: scrape.EnvoyPath,
		XDS: bootstrap.ControlPlane{
			Socket: socketPath(s.XDS.Address), Host: s.xdsHost, Port: s.xdsPort,
			TLS: !s.XDS.Plaintext, ServerNames: s.serverNames(s.xdsHost), RootCert: s.XDS.RootCert, Identity: s.identified,
		},
		Buckets: s.buckets, MaxConnections: s.maxConnections,
		Patches: s.patches,
	}
	if s.identified || s.modules {
		o.SDSSocket = sds.SocketPath(s.workDir)
	}
	return o
}

// DefaultBootstrapTimeout bounds the wait for patches of the bootstrap before Envoy starts.
const DefaultBootstrapTimeout = 3 * time.Second

// maxTried bounds how many patches are tried one by one. Each trial is an Envoy process that validates a bootstrap.
const maxTried = 16

// bootstrapFile is the file with Envoy's bootstrap, and the patches of EnvoyFilters (applyTo: BOOTSTRAP) in it.
type bootstrapFile struct {
	*settings
	binary string                 // of Envoy, which validates patches
	path   string                 // set by write
	stream *bootstrappatch.Stream // delivers patches; nil: no EnvoyFilter patches the bootstrap
}

// write writes the file. Only the agent's user may read it, because metadata may contain secrets.
func (b *bootstrapFile) write() error {
	content, err := b.bootstrapOptions().JSON()
	if err != nil {
		return err
	}
	b.path = filepath.Join(b.workDir, "envoy-bootstrap.json")
	if err := os.WriteFile(b.path, content, 0o600); err != nil {
		return fmt.Errorf("cannot write Envoy's bootstrap: %w: correct --work-dir", err)
	}
	return nil
}

// patchBootstrap asks the control plane for patches of the bootstrap, and writes the bootstrap with those that Envoy
// accepts. It NACKs the others. If the control plane does not answer in time, the bootstrap stays without patches.
func (a *agent) patchBootstrap(parent context.Context) (stop func(), err error) {
	nothing := func() {}
	if a.BootstrapTimeout <= 0 {
		return nothing, nil
	}
	node, err := a.controlPlane.node("bootstrap", agentapi.MetaExtensions)
	if err != nil {
		return nothing, err
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(parent))
	bound, release := time.AfterFunc(a.BootstrapTimeout, cancel), context.AfterFunc(parent, cancel)
	stream, patches, err := bootstrappatch.Ask(ctx, a.controlPlane.dialWithIdentity, node, a.log)
	if release(); err != nil || !bound.Stop() {
		cancel()
		stream.Close()
		a.log.Warn("the control plane did not answer which EnvoyFilters patch the bootstrap; Envoy starts without patches", "waited", a.BootstrapTimeout, "error", err)
		return nothing, nil
	}
	refused, err := a.bootstrap.apply(ctx, patches)
	if err != nil {
		stream.Close()
	}
	if err != nil || !stream.Settle(refused) {
		cancel()
		return nothing, err
	}
	a.bootstrap.stream = stream
	done := make(chan struct{})
	go func() {
		defer close(done)
		stream.Watch(ctx)
	}()
	return func() {
		cancel()
		<-done
	}, nil
}

// apply writes the bootstrap with the patches that Envoy accepts. It returns why Envoy refuses the others, by name.
func (b *bootstrapFile) apply(ctx context.Context, all []bootstrappatch.Patch) (refused map[string]string, err error) {
	if len(all) == 0 {
		return nil, nil
	}
	accepted := make([]*bootstrapv3.Bootstrap, 0, len(all))
	for _, p := range all {
		accepted = append(accepted, p.Change)
	}
	refused = map[string]string{}
	if why := b.try(ctx, accepted); why != "" {
		accepted = b.tryEach(ctx, all, refused)
	}
	for _, name := range slices.Sorted(maps.Keys(refused)) {
		b.log.Error("Envoy refuses an EnvoyFilter's patch of the bootstrap; it is left out", "filter", name, "error", refused[name])
	}
	b.patches = accepted
	return refused, b.write()
}

// tryEach adds one patch after the other, and leaves out those that Envoy refuses together with the accepted ones.
func (b *bootstrapFile) tryEach(ctx context.Context, all []bootstrappatch.Patch, refused map[string]string) (accepted []*bootstrapv3.Bootstrap) {
	for i, p := range all {
		why := fmt.Sprintf("Envoy refuses the bootstrap with all %d EnvoyFilters, and only the first %d are tried one by one", len(all), maxTried)
		if i < maxTried {
			why = b.try(ctx, append(slices.Clone(accepted), p.Change))
		}
		if why == "" {
			accepted = append(accepted, p.Change)
			continue
		}
		refused[p.Name] = why
	}
	return accepted
}

// try returns why Envoy refuses the bootstrap with patches; empty: Envoy accepts it.
func (b *bootstrapFile) try(ctx context.Context, patches []*bootstrapv3.Bootstrap) (why string) {
	o := b.bootstrapOptions()
	o.Patches = patches
	content, err := o.JSON()
	if err != nil {
		return err.Error()
	}
	file := filepath.Join(b.workDir, "envoy-bootstrap.try.json")
	defer func() { _ = os.Remove(file) }()
	if err := os.WriteFile(file, content, 0o600); err != nil {
		return err.Error()
	}
	if err := envoy.Validate(ctx, b.binary, file); err != nil {
		return err.Error()
	}
	return ""
}

// dropPatches removes the patches after an Envoy that did not start with them. It reports whether there were any.
func (b *bootstrapFile) dropPatches(c *child) bool {
	if len(b.patches) == 0 {
		return false
	}
	b.patches = nil
	if err := b.write(); err != nil {
		b.log.Error("cannot write the bootstrap without the patches of EnvoyFilters", "error", err)
		return false
	}
	why := fmt.Sprintf("Envoy did not start with it (%s): %s", ending(c.process.Err()), strings.Join(c.output.Last(), " "))
	b.log.Error("Envoy did not start with the patches of EnvoyFilters; it starts again without them", "reason", why)
	b.stream.Drop(why)
	return true
}
