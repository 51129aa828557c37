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
	k, p, agentAt := newModuleCache(t, time.Hour)
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
	path := func(name string) string { return k.Cache.path(sha(module(name))) }
	tell := func(version, name string) {
		p.reply(t, version, told(t, version, s.URL+"/"+name, wasmv3.FailurePolicy_FAIL_CLOSED))
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
	require.Equal(t, 1, usersOf(k, "a"), "the accepted version keeps its file")
	tell("4", "d")
	e.say("")
	require.Eventually(t, func() bool { return usersOf(k, "a") == 0 && usersOf(k, "d") == 1 }, time.Minute, time.Millisecond)

	await.To(t, p.says, &discoveryv3.DeltaDiscoveryResponse{Nonce: "5", RemovedResources: []string{"plugin"}})
	await.From(t, p.asked)
	tell("6", "b")
	refuse("deny")
	await.To(t, p.says, &discoveryv3.DeltaDiscoveryResponse{Nonce: "7", RemovedResources: []string{"plugin"}})
	await.From(t, p.asked)
	for _, name := range []string{"a", "b", "c", "d"} {
		require.Zero(t, usersOf(k, name), name)
	}
}

// TestAnswersAfterReplacement: Envoy's answer to a version may arrive after the next version is served. The next
// version falls back to it if Envoy accepted it, and not if Envoy refused it.
func TestAnswersAfterReplacement(t *testing.T) {
	fallback := &anypb.Any{TypeUrl: "fallback"}
	for _, test := range []struct {
		name    string
		answer  func(k *ModuleCache, first, second *served)
		want    string
		release []string
	}{
		{"accepted late", func(k *ModuleCache, first, second *served) { k.accept(first); k.refuse("plugin", second, "bad") }, "1", nil},
		{"accepted after its successor was refused", func(k *ModuleCache, first, second *served) { k.refuse("plugin", second, "bad"); k.accept(first) }, "1", nil},
		{"refused late", func(k *ModuleCache, first, second *served) {
			k.refuse("plugin", first, "bad")
			k.refuse("plugin", second, "bad")
		}, "fallback", []string{"1"}},
		{"not answered", func(k *ModuleCache, _, second *served) { k.refuse("plugin", second, "bad") }, "fallback", nil},
		{"successor accepted", func(k *ModuleCache, first, second *served) { k.accept(first); k.accept(second) }, "2", []string{"1"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			k := New(Options{Log: slog.New(slog.DiscardHandler)})
			var released []string
			serve := func(version string) *served {
				s := &served{version: version, config: &anypb.Any{TypeUrl: version}, fallback: fallback, release: func() { released = append(released, version) }}
				k.serve("plugin", s)
				now, _, _ := k.give("plugin", true)
				require.Same(t, s, now)
				return s
			}
			first := serve("1")
			test.answer(k, first, serve("2"))
			_, config, _ := k.give("plugin", false)
			require.Equal(t, test.want, config.TypeUrl)
			require.Equal(t, test.release, released)
			k.serve("plugin", nil)
			require.ElementsMatch(t, []string{"1", "2"}, released)
		})
	}
}

// usersOf is who uses a module's file.
func usersOf(k *ModuleCache, name string) int {
	k.Cache.mu.Lock()
	defer k.Cache.mu.Unlock()
	if f := k.Cache.files[sha(module(name))]; f != nil {
		return f.users
	}
	return 0
}
