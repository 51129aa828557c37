package agent

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"

	"google.golang.org/grpc"

	"github.com/moonsail/moonsail/internal/agent/sds"
	"github.com/moonsail/moonsail/internal/agent/wasm"
)

// What tells the control plane that an agent fetches modules of plugins, and that a stream is for
// plugins with such modules alone.
const (
	modulesMetadata    = "MOONSAIL_MODULES"
	extensionsMetadata = "MOONSAIL_EXTENSIONS"
)

// offerModules decides whether modules can be fetched: Envoy asks for them by the agent's socket.
func (s *settings) offerModules() {
	if s.modules = sds.Fits(s.workDir); s.modules {
		s.node.metadata[modulesMetadata] = true
		return
	}
	s.log.Warn("the agent's socket has too long a path, so modules of WasmPlugins are not fetched", "path", sds.SocketPath(s.workDir))
}

// serveEnvoy begins to give Envoy certificates, where the workload has any, and plugins with modules
// that are fetched.
func (a *agent) serveEnvoy(ctx context.Context) (stop func(), err error) {
	if !a.identified && !a.modules {
		return func() {}, nil
	}
	var source sds.Source
	if a.identity != nil {
		source = a.identity
	}
	plugins, stopPlugins, err := a.startPlugins(ctx)
	if err != nil {
		return nil, err
	}
	server, err := sds.Start(context.WithoutCancel(ctx), a.workDir, source, a.log, plugins...)
	if err != nil {
		stopPlugins()
		return nil, err
	}
	return func() {
		stopPlugins()
		server.Close()
	}, nil
}

// startPlugins gives what is to be offered to Envoy.
func (a *agent) startPlugins(ctx context.Context) (offers []func(grpc.ServiceRegistrar), stop func(), err error) {
	if !a.modules {
		return nil, func() {}, nil
	}
	node, err := a.ownNode("plugins", extensionsMetadata)
	if err != nil {
		return nil, nil, err
	}
	cache, err := wasm.NewCache(orDefault(a.WasmCacheDir, filepath.Join(a.workDir, "wasm")), wasm.NewMetrics(a.metrics.registry))
	if err != nil {
		return nil, nil, fmt.Errorf("%w: correct --wasm-cache-dir or --work-dir", err)
	}
	keeper := wasm.New(wasm.Options{Dial: a.dialXDS, Node: node, Cache: cache, Log: a.log.With(slog.String("for", "plugins"))})
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		keeper.Run(ctx)
	}()
	return []func(grpc.ServiceRegistrar){keeper.Register}, func() {
		cancel()
		<-done
		cache.Close()
	}, nil
}
