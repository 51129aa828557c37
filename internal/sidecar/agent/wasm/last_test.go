package wasm

import (
	"log/slog"
	"testing"
	"time"

	wasmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/wasm/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	extensionv3 "github.com/envoyproxy/go-control-plane/envoy/service/extension/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/moonsail/moonsail/test/await"
)

// TestRefusedModuleFallsBackToAcceptedOne checks that an Envoy that refuses a module gets the version that it accepted
// before, whose file still exists, also on a new stream. A plugin that was removed and returns broken has only its
// failStrategy.
func TestRefusedModuleFallsBackToAcceptedOne(t *testing.T) {
	s := newShelf(t, map[string][]byte{"a": module("a"), "b": module("b"), "c": module("c"), "d": module("d")})
	cache, p, agentAt := newModuleCache(t, time.Hour)
	conn := dial(t, agentAt)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	subscribe := func() *envoy {
		stream, err := extensionv3.NewExtensionConfigDiscoveryServiceClient(conn).StreamExtensionConfigs(await.Context(t))
		require.NoError(t, err)
		e := &envoy{t: t, stream: stream}
		e.say("")
		return e
	}
	e := subscribe()
	await.From(t, p.asked)
	path := func(name string) string { return cache.Cache.path(sha(module(name))) }
	tell := func(version, name string) {
		p.reply(t, version, sentPlugin(t, version, s.URL+"/"+name, wasmv3.FailurePolicy_FAIL_CLOSED))
		require.Equal(t, path(name), e.gets())
	}
	refuse := func(gets string) {
		e.say("bad module")
		require.Equal(t, gets, e.gets())
		e.say("")
		await.From(t, p.asked) // the stream with the report
	}
	tell("1", "a")
	e.say("")
	tell("2", "b")
	refuse(path("a"))
	again := subscribe()
	require.Equal(t, path("a"), again.gets(), "a refused module is not sent again")
	again.say("")
	require.NoError(t, again.stream.CloseSend())
	tell("3", "c")
	refuse(path("a"))
	require.Equal(t, 1, usersOf(cache, "a"), "the accepted version keeps its file")
	tell("4", "d")
	e.say("")
	require.Eventually(t, func() bool { return usersOf(cache, "a") == 0 && usersOf(cache, "d") == 1 }, time.Minute, time.Millisecond)

	await.To(t, p.says, &discoveryv3.DeltaDiscoveryResponse{Nonce: "5", RemovedResources: []string{"plugin"}})
	await.From(t, p.asked)
	tell("6", "b")
	refuse("deny")
	await.To(t, p.says, &discoveryv3.DeltaDiscoveryResponse{Nonce: "7", RemovedResources: []string{"plugin"}})
	await.From(t, p.asked)
	for _, name := range []string{"a", "b", "c", "d"} {
		require.Zero(t, usersOf(cache, name), name)
	}
}

// TestAnswersAfterReplacement: Envoy's answer to a version may arrive after the next version is served. The next
// version falls back to it if Envoy accepted it, and not if Envoy refused it.
func TestAnswersAfterReplacement(t *testing.T) {
	fallback := &anypb.Any{TypeUrl: "fallback"}
	for _, test := range []struct {
		name    string
		answer  func(cache *ModuleCache, first, second *served)
		want    string
		release []string
	}{
		{"accepted late", func(cache *ModuleCache, first, second *served) {
			cache.accept(first)
			cache.refuse("plugin", second, "bad")
		}, "1", nil},
		{"accepted after its successor was refused", func(cache *ModuleCache, first, second *served) {
			cache.refuse("plugin", second, "bad")
			cache.accept(first)
		}, "1", nil},
		{"refused late", func(cache *ModuleCache, first, second *served) {
			cache.refuse("plugin", first, "bad")
			cache.refuse("plugin", second, "bad")
		}, "fallback", []string{"1"}},
		{"not answered", func(cache *ModuleCache, _, second *served) { cache.refuse("plugin", second, "bad") }, "fallback", nil},
		{"successor accepted", func(cache *ModuleCache, first, second *served) { cache.accept(first); cache.accept(second) }, "2", []string{"1"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			cache := New(Options{Log: slog.New(slog.DiscardHandler)})
			var released []string
			serve := func(version string) *served {
				s := &served{version: version, config: &anypb.Any{TypeUrl: version}, fallback: fallback, release: func() { released = append(released, version) }}
				cache.serve("plugin", s)
				now, _, _ := cache.give("plugin", true)
				require.Same(t, s, now)
				return s
			}
			first := serve("1")
			test.answer(cache, first, serve("2"))
			_, config, _ := cache.give("plugin", false)
			require.Equal(t, test.want, config.TypeUrl)
			require.Equal(t, test.release, released)
			cache.serve("plugin", nil)
			require.ElementsMatch(t, []string{"1", "2"}, released)
		})
	}
}

// usersOf is who uses a module's file.
func usersOf(cache *ModuleCache, name string) int {
	cache.Cache.mu.Lock()
	defer cache.Cache.mu.Unlock()
	if f := cache.Cache.files[sha(module(name))]; f != nil {
		return f.users
	}
	return 0
}
