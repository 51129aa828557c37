package wasm

import (
	"context"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	wasmfilterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/wasm/v3"
	rbactcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/rbac/v3"
	networkwasmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/wasm/v3"
	wasmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/wasm/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	extensionv3 "github.com/envoyproxy/go-control-plane/envoy/service/extension/v3"
	"github.com/stretchr/testify/require"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/moonsail/moonsail/internal/xds/wasmplugin"
	"github.com/moonsail/moonsail/test/await"
)

// plane is a control plane whose answers a test determines. It can cut streams.
type plane struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	asked chan *discoveryv3.DeltaDiscoveryRequest
	says  chan *discoveryv3.DeltaDiscoveryResponse
}

func (p *plane) DeltaAggregatedResources(s grpc.BidiStreamingServer[discoveryv3.DeltaDiscoveryRequest, discoveryv3.DeltaDiscoveryResponse]) error {
	received := make(chan *discoveryv3.DeltaDiscoveryRequest)
	go func() {
		defer close(received)
		for {
			r, err := s.Recv()
			if err != nil {
				return
			}
			select {
			case received <- r:
			case <-s.Context().Done():
				return
			}
		}
	}()
	for {
		select {
		case r, ok := <-received:
			if !ok {
				return nil
			}
			p.asked <- r
		case m := <-p.says:
			if err := s.Send(m); err != nil {
				return err
			}
		}
	}
}

// serve serves on a socket until the test ends.
func serve(t *testing.T, register func(*grpc.Server)) (address string) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", path)
	require.NoError(t, err)
	g := grpc.NewServer()
	register(g)
	done := make(chan struct{})
	go func() { defer close(done); _ = g.Serve(l) }()
	t.Cleanup(func() { g.Stop(); await.From(t, done) })
	return "unix://" + path
}

func dial(t *testing.T, address string) *grpc.ClientConn {
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	return conn
}

// sentPlugin returns a plugin as the control plane sends it.
func sentPlugin(t *testing.T, version, url string, policy wasmv3.FailurePolicy) *discoveryv3.Resource {
	return toldOf(t, version, &wasmfilterv3.Wasm{Config: configOf(version, url, policy)})
}

func configOf(version, url string, policy wasmv3.FailurePolicy) *wasmv3.PluginConfig {
	return &wasmv3.PluginConfig{FailurePolicy: policy, Vm: &wasmv3.PluginConfig_VmConfig{
		VmConfig: &wasmv3.VmConfig{
			Code:                 &corev3.AsyncDataSource{Specifier: &corev3.AsyncDataSource_Remote{Remote: &corev3.RemoteDataSource{HttpUri: &corev3.HttpUri{Uri: url}, Sha256: wasmplugin.NoSum}}},
			EnvironmentVariables: &wasmv3.EnvironmentVariables{KeyValues: map[string]string{wasmplugin.PullPolicy: wasmplugin.PullAlways, wasmplugin.Version: version, wasmplugin.PullSecret: "{}"}},
		}}}
}

func toldOf(t *testing.T, version string, filter proto.Message) *discoveryv3.Resource {
	config, err := anypb.New(filter)
	require.NoError(t, err)
	packed, err := anypb.New(&corev3.TypedExtensionConfig{Name: "plugin", TypedConfig: config})
	require.NoError(t, err)
	return &discoveryv3.Resource{Name: "plugin", Version: version, Resource: packed}
}

// envoy is a subscription to one plugin.
type envoy struct {
	t      *testing.T
	stream extensionv3.ExtensionConfigDiscoveryService_StreamExtensionConfigsClient
	last   *discoveryv3.DiscoveryResponse
}

func (e *envoy) say(refusal string) {
	r := &discoveryv3.DiscoveryRequest{TypeUrl: TypeURL, ResourceNames: []string{"plugin"}, ResponseNonce: e.last.GetNonce()}
	if refusal != "" {
		r.ErrorDetail = &statuspb.Status{Message: refusal}
	}
	require.NoError(e.t, e.stream.Send(r))
}

// gets returns the file of the module, or "deny" or "allow".
func (e *envoy) gets() string {
	var err error
	e.last, err = e.stream.Recv()
	require.NoError(e.t, err)
	named, wasm, rbac := &corev3.TypedExtensionConfig{}, &wasmfilterv3.Wasm{}, &rbacv3.RBAC{}
	require.NoError(e.t, e.last.Resources[0].UnmarshalTo(named))
	require.Equal(e.t, "plugin", named.Name)
	if named.TypedConfig.UnmarshalTo(wasm) == nil {
		require.Nil(e.t, wasm.Config.GetVmConfig().EnvironmentVariables, "variables for the agent are removed")
		return wasm.Config.GetVmConfig().Code.GetLocal().GetFilename()
	}
	require.NoError(e.t, named.TypedConfig.UnmarshalTo(rbac))
	if rbac.Rules != nil {
		return "deny"
	}
	return "allow"
}

// newModuleCache runs a ModuleCache with a control plane, and returns the address for Envoys.
func newModuleCache(t *testing.T, patience time.Duration) (cache *ModuleCache, p *plane, agentAt string) {
	p = &plane{asked: make(chan *discoveryv3.DeltaDiscoveryRequest), says: make(chan *discoveryv3.DeltaDiscoveryResponse)}
	planeAt := serve(t, func(g *grpc.Server) { discoveryv3.RegisterAggregatedDiscoveryServiceServer(g, p) })
	cache = New(Options{
		Dial: func() (*grpc.ClientConn, error) { return dial(t, planeAt), nil }, Node: &corev3.Node{Id: "me"},
		Cache: newCache(t, t.TempDir()), Log: slog.New(slog.DiscardHandler),
	})
	cache.feed.patience = patience
	agentAt = serve(t, func(g *grpc.Server) { cache.Register(g) })
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); cache.Run(ctx) }()
	t.Cleanup(func() { cancel(); await.From(t, ended) })
	return cache, p, agentAt
}

// reply sends plugins, and returns the error of a NACK.
func (p *plane) reply(t *testing.T, nonce string, r ...*discoveryv3.Resource) string {
	await.To(t, p.says, &discoveryv3.DeltaDiscoveryResponse{Nonce: nonce, Resources: r})
	ack := await.From(t, p.asked)
	require.Equal(t, nonce, ack.ResponseNonce)
	return ack.GetErrorDetail().GetMessage()
}

func TestModuleCache(t *testing.T) {
	s := newShelf(t, map[string][]byte{"a": module("a"), "b": module("b")})
	modules, p, agentAt := newModuleCache(t, time.Hour)
	cache := modules.Cache
	conn := dial(t, agentAt)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	stream, err := extensionv3.NewExtensionConfigDiscoveryServiceClient(conn).StreamExtensionConfigs(await.Context(t))
	require.NoError(t, err)
	e := &envoy{t: t, stream: stream}
	e.say("")

	require.Equal(t, "me", await.From(t, p.asked).Node.Id, "the agent connects once Envoy requests a plugin")
	reply := func(nonce string, r ...*discoveryv3.Resource) string { return p.reply(t, nonce, r...) }
	require.Contains(t, reply("1", sentPlugin(t, "1", s.URL+"/none", wasmv3.FailurePolicy_FAIL_CLOSED)), "plugin: module "+s.URL+"/none is not there")
	require.Equal(t, "deny", e.gets())
	e.say("")
	require.Contains(t, reply("2", sentPlugin(t, "2", s.URL+"/none", wasmv3.FailurePolicy_FAIL_OPEN)), "404")
	require.Equal(t, "allow", e.gets())
	e.say("")
	require.Empty(t, reply("3", sentPlugin(t, "3", s.URL+"/a", wasmv3.FailurePolicy_FAIL_CLOSED)))
	require.Equal(t, cache.path(sha(module("a"))), e.gets())

	e.say("bad module")
	require.Equal(t, "deny", e.gets(), "nothing replaces a refused first version")
	e.say("")
	again := await.From(t, p.asked)
	require.Empty(t, again.InitialResourceVersions, "the control plane sends the refused plugin again")
	require.Contains(t, reply("1", sentPlugin(t, "3", s.URL+"/a", wasmv3.FailurePolicy_FAIL_CLOSED)), "plugin: Envoy refuses it: bad module")
	require.Empty(t, reply("2", sentPlugin(t, "4", s.URL+"/b", wasmv3.FailurePolicy_FAIL_CLOSED)))
	require.Equal(t, cache.path(sha(module("b"))), e.gets())
	e.say("")
	require.Contains(t, reply("3", sentPlugin(t, "5", s.URL+"/none", wasmv3.FailurePolicy_FAIL_OPEN)), "404")
	now, _ := modules.get("plugin")
	require.Equal(t, "4", now.version, "the version before stays")

	remove := func(nonce string) {
		await.To(t, p.says, &discoveryv3.DeltaDiscoveryResponse{Nonce: nonce, RemovedResources: []string{"plugin"}})
		await.From(t, p.asked)
		now, _ = modules.get("plugin")
		require.Nil(t, now)
	}
	remove("4")
	require.Contains(t, reply("5", sentPlugin(t, "6", s.URL+"/none", wasmv3.FailurePolicy_FAIL_OPEN)), "404")
	require.Equal(t, "allow", e.gets())
	e.say("")
	require.Empty(t, reply("6", sentPlugin(t, "7", s.URL+"/a", wasmv3.FailurePolicy_FAIL_CLOSED)))
	require.Equal(t, cache.path(sha(module("a"))), e.gets())
	e.say("bad module")
	require.Equal(t, "deny", e.gets(), "a stand-in applies to its own version only")
	await.From(t, p.asked)
	remove("1")
	cache.mu.Lock()
	defer cache.mu.Unlock()
	for sum, f := range cache.files {
		require.Zero(t, f.users, sum)
	}
}

// TestPluginsOfConnections checks that plugins of connections are replaced by filters of connections.
func TestPluginsOfConnections(t *testing.T) {
	for policy, denied := range map[wasmv3.FailurePolicy]bool{wasmv3.FailurePolicy_FAIL_OPEN: false, wasmv3.FailurePolicy_FAIL_CLOSED: true, wasmv3.FailurePolicy_FAIL_RELOAD: true} {
		p, err := read(toldOf(t, "1", &networkwasmv3.Wasm{Config: configOf("1", "http://example.com/a", policy)}))
		require.NoError(t, err)
		require.Equal(t, Module{URL: "http://example.com/a", Anew: true, Version: "1", Login: "{}"}, p.module)
		unpacked := func(packed *anypb.Any, err error) proto.Message {
			require.NoError(t, err)
			named := &corev3.TypedExtensionConfig{}
			require.NoError(t, packed.UnmarshalTo(named))
			m, err := named.TypedConfig.UnmarshalNew()
			require.NoError(t, err)
			return m
		}
		wasm, ok := unpacked(p.with("/a.wasm")).(*networkwasmv3.Wasm)
		require.True(t, ok)
		require.Equal(t, "/a.wasm", wasm.Config.GetVmConfig().Code.GetLocal().GetFilename())
		require.Equal(t, policy, wasm.Config.FailurePolicy)
		rbac, ok := unpacked(p.without()).(*rbactcpv3.RBAC)
		require.True(t, ok)
		require.NoError(t, rbac.ValidateAll())
		require.Equal(t, denied, rbac.Rules != nil)
	}
}

// TestRetry checks that a module is fetched after its server returns.
func TestRetry(t *testing.T) {
	s := newShelf(t, map[string][]byte{"a": module("a")})
	s.down.Store(true)
	cache := New(Options{Cache: newCache(t, t.TempDir()), Log: slog.New(slog.DiscardHandler)})
	f := &cache.feed
	nack := f.take(t.Context(), &discoveryv3.DeltaDiscoveryResponse{Resources: []*discoveryv3.Resource{sentPlugin(t, "1", s.URL+"/a", wasmv3.FailurePolicy_FAIL_CLOSED)}})
	require.Contains(t, nack.ErrorDetail.Message, "503")
	retried := func() bool {
		f.retry(t.Context())
		await.From(t, f.fetching["plugin"].done)
		return f.collect()
	}
	require.False(t, retried())
	require.Empty(t, f.versions)
	s.down.Store(false)
	require.True(t, retried())
	require.Equal(t, map[string]string{"plugin": "1"}, f.versions, "a new stream reports it")
	now, _ := cache.get("plugin")
	require.False(t, now.standIn)
	require.Equal(t, fetchMost, f.retryIn(), "nothing is left to retry")
}

// hanging is a server with a module that does not answer before goOn.
func hanging(t *testing.T) (url string, goOn func()) {
	wait := make(chan struct{})
	goOn = sync.OnceFunc(func() { close(wait) })
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-wait:
			_, _ = w.Write(module("late"))
		}
	}))
	t.Cleanup(s.Close)
	t.Cleanup(goOn)
	return s.URL + "/late", goOn
}

func named(t *testing.T, name string, r *discoveryv3.Resource) *discoveryv3.Resource {
	config := &corev3.TypedExtensionConfig{}
	require.NoError(t, r.Resource.UnmarshalTo(config))
	config.Name = name
	packed, err := anypb.New(config)
	require.NoError(t, err)
	return &discoveryv3.Resource{Name: name, Version: r.Version, Resource: packed}
}

// TestSlowServersDelayNothing checks that the answer to the control plane does not wait for a first fetch, so that
// other plugins arrive, and that the result follows.
func TestSlowServersDelayNothing(t *testing.T) {
	s := newShelf(t, map[string][]byte{"a": module("a")})
	url, goOn := hanging(t)
	cache, p, _ := newModuleCache(t, time.Millisecond)
	cache.want()
	await.From(t, p.asked)
	late := named(t, "late", sentPlugin(t, "1", url, wasmv3.FailurePolicy_FAIL_CLOSED))
	require.Equal(t, "late: module "+url+" is not there: it is still being fetched", p.reply(t, "1", late))
	now, _ := cache.get("late")
	require.Nil(t, now, "its listener waits")
	// If the fetch takes longer than the patience, the answer is a NACK, which the end of the fetch may overtake: it opens
	// the next stream.
	await.To(t, p.says, &discoveryv3.DeltaDiscoveryResponse{Nonce: "2", Resources: []*discoveryv3.Resource{sentPlugin(t, "1", s.URL+"/a", wasmv3.FailurePolicy_FAIL_CLOSED)}})
	for now, changed := cache.get("plugin"); now == nil; now, changed = cache.get("plugin") {
		<-changed
	}

	goOn()
	both := map[string]string{"plugin": "1", "late": "1"}
	for r := range p.asked { // the next stream reports it
		if maps.Equal(both, r.InitialResourceVersions) {
			break
		}
	}
	now, _ = cache.get("late")
	require.False(t, now.standIn)
}

// TestAnAttemptEndsWithItsPlugin checks that the successor of a plugin does not wait for its fetch.
func TestAnAttemptEndsWithItsPlugin(t *testing.T) {
	s := newShelf(t, map[string][]byte{"a": module("a")})
	url, _ := hanging(t)
	cache := New(Options{Cache: newCache(t, t.TempDir()), Log: slog.New(slog.DiscardHandler)})
	f := &cache.feed
	f.patience = time.Nanosecond
	take := func(r ...*discoveryv3.Resource) string {
		return f.take(t.Context(), &discoveryv3.DeltaDiscoveryResponse{Resources: r}).ErrorDetail.GetMessage()
	}
	require.Contains(t, take(sentPlugin(t, "1", url, wasmv3.FailurePolicy_FAIL_CLOSED)), "it is still being fetched")
	first := f.fetching["plugin"]
	require.Contains(t, take(sentPlugin(t, "1", url, wasmv3.FailurePolicy_FAIL_CLOSED)), "it is still being fetched")
	require.Same(t, first, f.fetching["plugin"], "it continues")
	f.patience = time.Hour
	require.Empty(t, take(sentPlugin(t, "2", s.URL+"/a", wasmv3.FailurePolicy_FAIL_CLOSED)))
	require.ErrorIs(t, first.err, context.Canceled)
	now, _ := cache.get("plugin")
	require.Equal(t, "2", now.version)

	f.patience = time.Nanosecond
	require.NotEmpty(t, take(sentPlugin(t, "3", url, wasmv3.FailurePolicy_FAIL_CLOSED)))
	f.take(t.Context(), &discoveryv3.DeltaDiscoveryResponse{RemovedResources: []string{"plugin"}})
	require.Empty(t, f.fetching)
	now, _ = cache.get("plugin")
	require.Nil(t, now)
}

// TestKnownFailuresAreAnsweredAtOnce checks that the control plane gets a known failure without a request to a server.
func TestKnownFailuresAreAnsweredAtOnce(t *testing.T) {
	s := newShelf(t, nil)
	cache := New(Options{Cache: newCache(t, t.TempDir()), Log: slog.New(slog.DiscardHandler)})
	f := &cache.feed
	r := &discoveryv3.DeltaDiscoveryResponse{Resources: []*discoveryv3.Resource{sentPlugin(t, "1", s.URL+"/none", wasmv3.FailurePolicy_FAIL_CLOSED)}}
	a, err := f.begin(t.Context(), r.Resources[0])
	require.NoError(t, err)
	a.late = true
	await.From(t, a.done)
	require.True(t, f.collect(), "the answer has the reason")
	for range 2 {
		require.Contains(t, f.take(t.Context(), r).ErrorDetail.Message, "404")
	}
	require.EqualValues(t, 1, s.asked.Load())
}
