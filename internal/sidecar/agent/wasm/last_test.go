package wasm

import (
	"testing"
	"time"

	wasmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/wasm/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	extensionv3 "github.com/envoyproxy/go-control-plane/envoy/service/extension/v3"
	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/test/await"
)

// TestWhatWasTakenIsGivenAgain: Envoy that refuses a module is given what it took before, with its file still there,
// and once more when it asks anew; what was taken away and comes back broken has nothing but its failStrategy.
func TestWhatWasTakenIsGivenAgain(t *testing.T) {
	s := newShelf(t, map[string][]byte{"a": module("a"), "b": module("b"), "c": module("c"), "d": module("d")})
	k, p, agentAt := newKeeper(t, time.Hour)
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
		await.From(t, p.asked) // the stream on which it is told
	}
	tell("1", "a")
	e.say("")
	tell("2", "b")
	refuse(path("a"))
	again := subscribe()
	require.Equal(t, path("a"), again.gets(), "nobody is given what is known to be refused")
	again.say("")
	require.NoError(t, again.stream.CloseSend())
	tell("3", "c")
	refuse(path("a"))
	require.Equal(t, 1, usersOf(k, "a"), "its file is not to go")
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

// usersOf is who uses a module's file.
func usersOf(k *ModuleCache, name string) int {
	k.Cache.mu.Lock()
	defer k.Cache.mu.Unlock()
	if f := k.Cache.files[sha(module(name))]; f != nil {
		return f.users
	}
	return 0
}
