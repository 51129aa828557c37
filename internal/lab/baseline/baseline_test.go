package baseline

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/moonsail/moonsail/internal/lab/fleet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// run serves dir until the test ends, and returns the address.
func run(t *testing.T, o Options) string {
	t.Helper()
	lines, w := io.Pipe()
	o.Addr, o.Log = "127.0.0.1:0", slog.New(slog.NewJSONHandler(w, nil))
	ctx, cancel := context.WithCancel(t.Context())
	end := make(chan error, 1)
	go func() {
		err := Run(ctx, o)
		w.CloseWithError(err)
		end <- err
	}()
	var line struct{ Addr string }
	dec := json.NewDecoder(lines)
	require.NoError(t, dec.Decode(&line))
	t.Cleanup(func() {
		cancel()
		require.NoError(t, lines.Close())
		require.NoError(t, <-end)
	})
	return line.Addr
}

func await(t *testing.T, r *fleet.Round) {
	t.Helper()
	select {
	case <-r.Done():
	case <-time.After(time.Minute):
		t.Fatalf("%d proxies are not there", r.Left())
	}
}

func response(k fleet.Kind, name, version string, m proto.Message) *discoveryv3.DeltaDiscoveryResponse {
	value, err := anypb.New(m)
	if err != nil {
		panic(err)
	}
	return &discoveryv3.DeltaDiscoveryResponse{TypeUrl: fleet.URLs[k], Nonce: "1",
		Resources: []*discoveryv3.Resource{{Name: name, Version: version, Resource: value}}}
}

func write(t *testing.T, path string, m proto.Message) {
	t.Helper()
	b, err := proto.Marshal(m)
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	tmp := path + ".tmp"
	require.NoError(t, os.WriteFile(tmp, b, 0o600))
	require.NoError(t, os.Rename(tmp, path))
}

// playback writes what a control plane would send first: a cluster with endpoints, and a listener without routes.
func playback(t *testing.T, dir string) {
	t.Helper()
	cluster := &clusterv3.Cluster{Name: "c", ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS}}
	write(t, PlaybackFile(dir, fleet.CDS, 0), response(fleet.CDS, "c", "1", cluster))
	write(t, PlaybackFile(dir, fleet.EDS, 0), response(fleet.EDS, "c", "1", &endpointv3.ClusterLoadAssignment{ClusterName: "c"}))
	write(t, PlaybackFile(dir, fleet.LDS, 0), response(fleet.LDS, "l", "1", &listenerv3.Listener{Name: "l"}))
}

func identities(n int) (out []fleet.Identity) {
	for range n {
		out = append(out, fleet.Identity{Name: "a", Namespace: "b", IP: "10.0.0.1"})
	}
	return out
}

// broadcast makes the baseline send every proxy a change.
func broadcast(t *testing.T, dir, version string) *discoveryv3.DeltaDiscoveryResponse {
	t.Helper()
	r := response(fleet.CDS, "baseline", version, &clusterv3.Cluster{Name: "baseline"})
	r.Nonce = BroadcastNonce
	write(t, filepath.Join(dir, "change"+Extension), r)
	return r
}

func TestBaseline(t *testing.T) {
	dir := t.TempDir()
	playback(t, dir)
	f := fleet.NewFleet(fleet.NewCatalog(), fleet.Options{Address: run(t, Options{Dir: dir})}, identities(5))
	f.Start(t.Context())
	defer f.Stop()
	await(t, f.Open())
	require.Equal(t, map[string]string{"c": "1"}, f.Proxies[3].Holdings()[fleet.EDS])

	for _, version := range []string{"1", "2", "3"} {
		round := f.Expect(nil, fleet.Want{Kind: fleet.CDS, Name: "baseline", Accept: func([]byte) bool { return true }})
		before := f.Traffic()
		r := broadcast(t, dir, version)
		await(t, round)
		require.Len(t, round.Latencies(), 5)
		for i, now := range f.Traffic() {
			require.EqualValues(t, 1, now.Sub(before[i]).Messages, "one message a change")
			require.EqualValues(t, proto.Size(r)+5, now.Sub(before[i]).Bytes, "as it was encoded")
		}
		f.Forget()
	}
	require.Equal(t, "3", f.Proxies[0].Holdings()[fleet.CDS]["baseline"])
	require.NoError(t, f.Trouble())
}

// TestHeldProxyConnectsAgain checks that a proxy reconnects when its stream ends, even while it does not read.
func TestHeldProxyConnectsAgain(t *testing.T) {
	dir := t.TempDir()
	playback(t, dir)
	f := fleet.NewFleet(fleet.NewCatalog(), fleet.Options{Address: run(t, Options{Dir: dir})}, identities(2))
	f.Start(t.Context())
	defer f.Stop()
	await(t, f.Open())
	resume := f.Hold(0)
	round := f.Expect([]bool{false, true}, fleet.Want{Kind: fleet.CDS, Name: "baseline"})
	broadcast(t, dir, "1")
	await(t, round)
	before := f.Traffic()[0]
	again := f.Stall(0)
	until(t, func() bool { return f.Traffic()[0].Sub(before).Connects == 1 })
	again()
	resume()
	until(t, f.Proxies[0].Ready)
}

func until(t *testing.T, is func() bool) {
	t.Helper()
	require.Eventually(t, is, time.Minute, time.Millisecond)
}

// A proxy that reconnects lists the resources that it has, and receives nothing but the answer to the probe.
func TestBaselineReconnect(t *testing.T) {
	dir := t.TempDir()
	playback(t, dir)
	ctx, cancel := context.WithCancel(t.Context())
	first := Options{Dir: dir}
	f := fleet.NewFleet(fleet.NewCatalog(), fleet.Options{Address: run(t, first)}, identities(3))
	f.Start(ctx)
	defer f.Stop()
	defer cancel()
	await(t, f.Open())
	f.Shut()
	f.Disconnect()
	before := f.Traffic()
	await(t, f.Open())
	for i, now := range f.Traffic() {
		require.EqualValues(t, 1, now.Sub(before[i]).Messages)
		require.EqualValues(t, 1, now.Sub(before[i]).Connects)
	}
	require.Equal(t, map[string]string{"c": "1"}, f.Proxies[0].Holdings()[fleet.CDS])
}

func TestBare(t *testing.T) {
	dir := t.TempDir()
	b, err := DialBare(t.Context(), run(t, Options{Dir: dir, Bare: true}), 4)
	require.NoError(t, err)
	defer b.Close()
	round := b.Expect()
	write(t, filepath.Join(dir, "change"+Extension), &discoveryv3.DeltaDiscoveryResponse{})
	await(t, round)
	require.Len(t, round.Latencies(), 4)
}
