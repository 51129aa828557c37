package server

import (
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/table"
)

func TestProgressIsThatOfTheWorstResource(t *testing.T) {
	refused, sent := []Held{{Name: "x"}}, time.Unix(1, 0)
	for name, c := range map[string]struct {
		state TypeState
		want  TypeProgress
	}{
		"not in use":                {TypeState{}, TypeNotInUse},
		"ACKed":                     {TypeState{Wildcard: true, Sent: 7, ACKed: 7}, TypeSynced},
		"not sent":                  {TypeState{Subscribed: 2}, TypeNotSent},
		"not sent, waiting":         {TypeState{Subscribed: 2, Waiting: "clusters"}, TypeWaiting},
		"in flight, more waits":     {TypeState{Sent: 7, InFlightSince: sent, Waiting: "clusters"}, TypeInFlight},
		"refused, and in flight":    {TypeState{Sent: 7, InFlightSince: sent, Held: refused}, TypeRefused},
		"refused, unsubscribed now": {TypeState{Held: refused}, TypeRefused},
	} {
		t.Run(name, func(t *testing.T) {
			if got := c.state.Progress(); got != c.want {
				t.Errorf("progress %d, want %d", got, c.want)
			}
		})
	}
}

// TestJudge checks that refused resources outweigh revisions that are not settled.
func TestJudge(t *testing.T) {
	held := []TypeState{{Type: "CDS", Held: []Held{{Name: "a"}, {Name: "b"}}}, {Type: "LDS", Held: []Held{{Name: "c"}}}}
	for want, p := range map[ProxyStatus]ProxyState{
		ProxySynced: {}, ProxyBehind: {Pending: 1}, ProxyRefuses: {Pending: 1, Types: held},
	} {
		require.Equal(t, want, p.Judge())
		require.Equal(t, want != ProxySynced, p.Behind())
		require.Contains(t, ProxyStatuses, want)
	}
	require.Equal(t, 3, (&ProxyState{Types: held}).Refused())
}

// TestCompareCountsWhatChangedSince checks what a proxy that has disconnected lacks of a table.
func TestCompareCountsWhatChangedSince(t *testing.T) {
	tab := table.New("outbound shop")
	put := func(name, value string) table.Update {
		e, err := resource.Encode(resource.Cluster, name, &clusterv3.Cluster{Name: name, AltStatName: value})
		require.NoError(t, err)
		return table.Update{Type: resource.Cluster, Name: name, Resource: e}
	}
	tab.Commit(1, []table.Update{put("a", "1"), put("b", "1"), put("c", "1")})
	tab.Commit(2, []table.Update{put("a", "2")})
	tab.Commit(3, []table.Update{put("a", "3"), {Type: resource.Cluster, Name: "b"}})
	for settled, lacks := range map[model.Revision]int{1: 2, 2: 2, 3: 0} {
		p := ProxyState{Settled: settled, Types: []TypeState{{Type: "CDS", Wildcard: true}, {Type: "EDS", Subscribed: 1}}}
		p.compare(tab.State())
		require.Equal(t, lacks, p.Types[0].Lacks, settled)
		require.Zero(t, p.Types[1].Lacks)
	}
}
