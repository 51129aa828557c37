package agent

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"

	"google.golang.org/grpc"

	"github.com/moonsail/moonsail/internal/sidecar/agent/sds"
	"github.com/moonsail/moonsail/internal/sidecar/agent/wasm"
	"github.com/moonsail/moonsail/internal/xds/agentapi"
)

// offerModules decides whether modules can be fetched: Envoy asks for them by the agent's socket.
func (s *settings) offerModules() {
	if s.modules = sds.Fits(s.workDir); s.modules {
		s.node.metadata[agentapi.MetaModules] = true
		// Envoy must not get by us what it may not read: where it is another user, it reads files itself; also where
		// the metadata says so, for who runs Envoy without us.
		if s.files = s.envoyUser() == nil && s.node.metadata[agentapi.MetaFiles] != false; s.files {
			s.node.metadata[agentapi.MetaFiles] = true
		}
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
	files, stopFiles, err := a.startFiles(ctx)
	if err != nil {
		stopPlugins()
		return nil, err
	}
	server, err := sds.Start(context.WithoutCancel(ctx), a.workDir, source, files, a.log, plugins...)
	if err != nil {
		stopPlugins()
		stopFiles()
		return nil, err
	}
	return func() {
		stopPlugins()
		server.Close()
		stopFiles()
	}, nil
}

// startFiles begins to read the files with certificates that Envoy will ask for; nil: it reads them itself.
func (a *agent) startFiles(ctx context.Context) (files *sds.Files, stop func(), err error) {
	if !a.files {
		return nil, func() {}, nil
	}
	if files, err = sds.NewFiles(a.metrics.registry, a.log); err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		files.Run(ctx)
	}()
	return files, func() {
		cancel()
		<-done
	}, nil
}

// startPlugins gives what is to be offered to Envoy.
func (a *agent) startPlugins(ctx context.Context) (offers []func(grpc.ServiceRegistrar), stop func(), err error) {
	if !a.modules {
		return nil, func() {}, nil
	}
	node, err := a.ownNode("plugins", agentapi.MetaExtensions)
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
