package agent

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strconv"

	"google.golang.org/grpc"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/security/safedial"
	"github.com/moonsail/moonsail/internal/sidecar/agent/identity"
	"github.com/moonsail/moonsail/internal/sidecar/agent/nameserver"
	"github.com/moonsail/moonsail/internal/sidecar/agent/sds"
	"github.com/moonsail/moonsail/internal/sidecar/agent/wasm"
	"github.com/moonsail/moonsail/internal/sidecar/intercept"
	"github.com/moonsail/moonsail/internal/xds/agentapi"
)

// The services beside Envoy outlive the context of Run: a sidecar that drains still uses them.

// runUntilStop runs f until stop, which waits for its end. The context of f outlives ctx.
func runUntilStop(ctx context.Context, f func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(ctx)
	}()
	return func() {
		cancel()
		<-done
	}
}

// startIdentity starts to get and renew the workload's certificate.
func (a *agent) startIdentity(ctx context.Context) (stop func(), err error) {
	if !a.identified {
		return func() {}, nil
	}
	a.identity, err = identity.New(identity.Options{
		Namespace: a.Workload.Namespace, ServiceAccount: a.Workload.ServiceAccount, TrustDomain: a.CA.TrustDomain,
		Address: a.caAddress, ServerNames: a.caNames(), TokenFile: a.CA.TokenFile, RootsFile: a.XDS.RootCert,
		ClusterID: a.ClusterID, TTL: a.CA.TTL, GraceRatio: a.CA.GraceRatio, RSABits: a.CA.RSABits,
		FilesDir: a.CA.MountedCerts, OutputDir: a.CA.OutputCerts, WorkloadAPI: a.CA.WorkloadAPI,
		Metrics: identity.NewMetrics(a.metrics.registry), Log: a.log,
	})
	if err != nil {
		return nil, err
	}
	a.controlPlane.identity = a.identity
	return runUntilStop(ctx, a.identity.Run), nil
}

// enableSDS decides what the agent's socket serves, and announces it in the node's metadata: Wasm modules, and files with
// certificates.
func (s *settings) enableSDS() {
	if !sds.Fits(s.workDir) {
		s.log.Warn("the path of the agent's socket is too long, so Wasm modules are not fetched: set a shorter --work-dir", "path", sds.SocketPath(s.workDir))
		return
	}
	s.modules = true
	s.node.Metadata[agentapi.MetaModules] = true
	// The agent must not give Envoy a file that Envoy's user may not read. If that is another user, Envoy reads files
	// itself, and also if the metadata asks for that, for a setup that runs Envoy without an agent.
	if s.files = s.envoyUser() == nil && s.node.Metadata[agentapi.MetaFiles] != false; s.files {
		s.node.Metadata[agentapi.MetaFiles] = true
	}
}

// serveEnvoy starts the socket that serves certificates and Wasm modules to Envoy.
func (a *agent) serveEnvoy(ctx context.Context) (stop func(), err error) {
	if !a.identified && !a.modules {
		return func() {}, nil
	}
	var source sds.Source
	if a.identity != nil {
		source = a.identity
	}
	modules, stopModules, err := a.startModules(ctx)
	if err != nil {
		return nil, err
	}
	files, stopFiles, err := a.startFiles(ctx)
	if err != nil {
		stopModules()
		return nil, err
	}
	server, err := sds.Start(context.WithoutCancel(ctx), a.workDir, source, files, a.log, modules...)
	if err != nil {
		stopModules()
		stopFiles()
		return nil, err
	}
	return func() {
		stopModules()
		server.Close()
		stopFiles()
	}, nil
}

// startFiles starts to read the files with certificates that Envoy requests. files is nil if Envoy reads them itself.
func (a *agent) startFiles(ctx context.Context) (files *sds.Files, stop func(), err error) {
	if !a.files {
		return nil, func() {}, nil
	}
	if files, err = sds.NewFiles(a.metrics.registry, a.log); err != nil {
		return nil, nil, err
	}
	return files, runUntilStop(ctx, files.Run), nil
}

// startModules starts to fetch Wasm modules. register adds the service that Envoy gets them from.
func (a *agent) startModules(ctx context.Context) (register []func(grpc.ServiceRegistrar), stop func(), err error) {
	if !a.modules {
		return nil, func() {}, nil
	}
	node, err := a.controlPlane.node("plugins", agentapi.MetaExtensions)
	if err != nil {
		return nil, nil, err
	}
	cache, err := wasm.NewCache(cmp.Or(a.WasmCacheDir, filepath.Join(a.workDir, "wasm")), safedial.Dialer{AllowLoopback: a.FetchAllowLoopback}, wasm.NewMetrics(a.metrics.registry))
	if err != nil {
		return nil, nil, fmt.Errorf("%w: correct --wasm-cache-dir or --work-dir", err)
	}
	modules := wasm.New(wasm.Options{Dial: a.controlPlane.dialStream, Node: node, Cache: cache, Log: a.log.With(slog.String("for", "plugins"))})
	stopModules := runUntilStop(ctx, modules.Run)
	return []func(grpc.ServiceRegistrar){modules.Register}, func() {
		stopModules()
		cache.Close()
	}, nil
}

func (s *settings) resolvConf() string { return cmp.Or(s.Intercept.ResolvConf, intercept.ResolvConf) }

// capturesDNS reports whether applications' DNS questions reach port 15053, by the agent's rules or by those of an init
// container, which reads the same annotations.
func (s *settings) capturesDNS() bool {
	yes, err := strconv.ParseBool(s.Intercept.Settings.Annotated(s.Workload.Annotations).CaptureDNS)
	return err == nil && yes && s.Interception != model.InterceptNone
}

// startNames starts the DNS proxy, if questions are captured.
func (a *agent) startNames(ctx context.Context) (stop func(), err error) {
	if !a.capturesDNS() {
		return func() {}, nil
	}
	node, err := a.controlPlane.node("dns", agentapi.MetaNames)
	if err != nil {
		return nil, err
	}
	table, server, err := a.serveNames(context.WithoutCancel(ctx))
	if err != nil {
		return nil, err
	}
	a.names = table
	feed := &nameserver.Feed{Dial: a.controlPlane.dialStream, Node: node, Table: table, Log: a.log}
	stopFeed := runUntilStop(ctx, feed.Run)
	return func() {
		stopFeed()
		server.Close()
	}, nil
}

// serveNames answers questions from a table that is empty at first.
func (a *agent) serveNames(ctx context.Context) (*nameserver.Table, *nameserver.Server, error) {
	addresses, err := a.namesAddresses()
	if err != nil {
		return nil, nil, err
	}
	upstream, search, err := nameserver.ReadConfig(a.resolvConf(), addresses)
	if err != nil {
		return nil, nil, fmt.Errorf("no servers for the DNS proxy: %w: correct the file, or leave out --capture-dns", err)
	}
	table := nameserver.NewTable(a.Workload.Namespace, a.Domain, search)
	server, err := nameserver.Start(ctx, nameserver.Options{
		Addresses: addresses, Table: table, Upstream: upstream, Metrics: nameserver.NewMetrics(a.metrics.registry), Log: a.log,
	})
	if err != nil {
		return nil, nil, err
	}
	a.log.Info("DNS proxy started", "at", addresses, "upstream", upstream)
	return table, server, nil
}

// namesAddresses are the addresses to which the rules redirect questions.
func (a *agent) namesAddresses() ([]string, error) {
	port := strconv.Itoa(intercept.DefaultDNSPort)
	out := []string{net.JoinHostPort("127.0.0.1", port)}
	c, err := a.interceptConfig()
	if err == nil && c.IPv6 {
		out = append(out, net.JoinHostPort("::1", port))
	}
	return out, err
}
