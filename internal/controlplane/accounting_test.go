package controlplane

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/controlplane/debug"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/changelog"
)

// ruleYAML makes a cluster differ with every n.
func ruleYAML(n int) string {
	return fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: cart, namespace: shop}
spec: {host: cart, trafficPolicy: {connectionPool: {tcp: {maxConnections: %d}}}}`, n+1)
}

// TestStagesAddUpToTheWhole measures the whole beside the change log, from the event to the moment in which
// the proxy sends its ACK. At the 99th percentile of many changes, less than 1 % of it is in no stage, and
// every stage is known.
func TestStagesAddUpToTheWhole(t *testing.T) {
	const changes = 200
	o := options(t)
	p := start(t, o)
	stream := subscribe(t, p.xds)
	ack := func(r *discovery.DeltaDiscoveryResponse) {
		require.NoError(t, stream.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: r.TypeUrl, ResponseNonce: r.Nonce}))
	}
	ack(&discovery.DeltaDiscoveryResponse{TypeUrl: "type.googleapis.com/envoy.config.cluster.v3.Cluster", Nonce: "1"})
	next := filepath.Join(t.TempDir(), "rule.yaml")
	acked := map[model.Revision]time.Time{}
	for i := range changes {
		require.NoError(t, os.WriteFile(next, []byte(ruleYAML(i)), 0o600))
		require.NoError(t, os.Rename(next, filepath.Join(o.ConfigDir, "rule.yaml")))
		r, err := stream.Recv()
		require.NoError(t, err)
		require.Len(t, r.Resources, 1)
		at := time.Now()
		ack(r)
		var rev model.Revision
		_, err = fmt.Sscan(r.SystemVersionInfo, &rev)
		require.NoError(t, err)
		acked[rev] = at
	}
	require.Len(t, acked, changes)

	var lost []float64 // shares of the whole
	for _, c := range distributed(t, p.http, acked) {
		stages, total := c.Timeline.Split(time.Nanosecond)
		whole := acked[c.Revision].Sub(c.Observed)
		var sum time.Duration
		for s, took := range stages {
			require.GreaterOrEqual(t, took, time.Duration(0))
			sum += took
			require.False(t, ends(&c)[s].IsZero(), "revision %d: stage %s did not end", c.Revision, changelog.Stage(s))
		}
		require.Equal(t, total, sum)
		require.True(t, slices.IsSortedFunc(ends(&c)[:changelog.StageSend], time.Time.Compare), "revision %d: %v", c.Revision, ends(&c))
		lost = append(lost, max(0, float64(whole-sum)/float64(whole)))
	}
	slices.Sort(lost)
	require.Less(t, lost[len(lost)*99/100], 0.01)
	require.NoError(t, p.end(t))
	http.DefaultClient.CloseIdleConnections()
}

// ends are the ends of the stages, in their order.
func ends(c *changelog.Change) []time.Time {
	return []time.Time{c.Times.Stored, c.Times.Derived, c.Times.Translated, c.Times.FirstSent, c.Times.LastAcked}
}

// distributed waits until all of these changes are distributed, and returns them.
func distributed(t *testing.T, addr string, wanted map[model.Revision]time.Time) []changelog.Change {
	t.Helper()
	var out []changelog.Change
	require.Eventually(t, func() bool {
		resp, err := http.Get("http://" + addr + "/debug/changes?n=1000")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		var list debug.ChangeList
		if json.NewDecoder(resp.Body).Decode(&list) != nil {
			return false
		}
		out = slices.DeleteFunc(list.Changes, func(c changelog.Change) bool {
			return wanted[c.Revision].IsZero() || c.State != changelog.Distributed
		})
		return len(out) == len(wanted)
	}, time.Minute, 10*time.Millisecond)
	return out
}
