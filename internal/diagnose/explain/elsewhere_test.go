package explain

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/pipeline/changelog"
	"github.com/moonsail/moonsail/internal/xds/distribution"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func said(e *Explanation) []PeerReply[Explanation] {
	return []PeerReply[Explanation]{{PeerQuery: PeerQuery{ControlPlane: "other:15012"}, Answer: e}}
}

// TestSameForm checks that versions are compared, and not revisions, which each control plane counts by
// itself.
func TestSameForm(t *testing.T) {
	mine := Explanation{Exists: true, Revision: 4, ResourceVersion: "81", Origin: "kubernetes", Content: "a"}
	for name, tc := range map[string]struct {
		other Explanation
		same  bool
	}{
		"the same":                        {Explanation{Exists: true, Revision: 9, ResourceVersion: "81"}, true},
		"another":                         {Explanation{Exists: true, Revision: 4, ResourceVersion: "80", Origin: "kubernetes", Content: "b"}, false},
		"a version with the same content": {Explanation{Exists: true, ResourceVersion: "80", Origin: "kubernetes", Content: "a"}, true},
		"files differ in version":         {Explanation{Exists: true, ResourceVersion: "80", Origin: "a.yaml:1", Content: "a"}, false},
		"none":                            {Explanation{}, false},
	} {
		require.Equal(t, tc.same, sameForm(&mine, &tc.other), name)
	}
	require.True(t, sameForm(&Explanation{}, &Explanation{}), "deleted at both")
}

func TestJoin(t *testing.T) {
	place := func(name string, p distribution.SyncState) distribution.ProxySyncStatus {
		return distribution.ProxySyncStatus{ID: name, Name: name, Position: p, Reasons: []distribution.Reason{{Since: noon}}}
	}
	e := &Explanation{Exists: true, ResourceVersion: "81", State: changelog.Distributed, Counts: Counts{Acked: 2},
		Away: []distribution.ProxySyncStatus{place("moved", distribution.StateDisconnected), place("away", distribution.StateDisconnected)}}
	other := &Explanation{Now: noon.Add(time.Second), Exists: true, ResourceVersion: "81", State: changelog.Distributing, Counts: Counts{Acked: 1, Behind: 1, Refused: 1}, LeftOut: 3,
		Proxies: []distribution.ProxySyncStatus{place("slow", distribution.StateBehind), place("old", distribution.StateRefused)},
		Away:    []distribution.ProxySyncStatus{place("away", distribution.StateDisconnected)}}
	require.Equal(t, []string{"away", "moved"}, e.Missing(said(other)))
	e.Join(said(other), map[string]bool{"moved": true}, Ask{Max: 2})
	require.Equal(t, Counts{Acked: 3, Behind: 1, Refused: 1, Disconnected: 1}, e.Counts)
	require.Equal(t, changelog.Distributing, e.State)
	require.Len(t, e.Proxies, 2)
	require.Equal(t, "old", e.Proxies[0].Name, "the worst first")
	require.Equal(t, "slow", e.Proxies[1].Name)
	require.Equal(t, "other:15012", e.Proxies[1].ControlPlane)
	require.Equal(t, time.Second, e.Now.Sub(e.Proxies[1].Reasons[0].Since), "by this clock")
	require.Equal(t, 4, e.LeftOut)
	require.True(t, e.Everywhere())
	require.Empty(t, e.Away)
}

// TestJoinWithoutAll checks that a change does not count as distributed if a control plane may have another
// version.
func TestJoinWithoutAll(t *testing.T) {
	for name, tc := range map[string]struct {
		answer *Explanation
		state  changelog.State
	}{
		"silent":   {nil, ""},
		"lags":     {&Explanation{Exists: true, ResourceVersion: "80", State: changelog.Distributed, Counts: Counts{Acked: 7, Refused: 1}}, OtherVersion},
		"building": {&Explanation{Exists: true, ResourceVersion: "81", State: changelog.Building}, changelog.Building},
	} {
		e := &Explanation{Exists: true, ResourceVersion: "81", State: changelog.Distributed, Counts: Counts{Acked: 2}}
		e.Join(said(tc.answer), nil, Ask{Max: 9})
		require.False(t, e.Everywhere(), name)
		require.Equal(t, changelog.Distributing, e.State, name)
		require.Equal(t, tc.state, e.Elsewhere[0].State, name)
		require.Equal(t, Counts{Acked: 2}, e.Counts, name)
	}
}

func TestJoinStale(t *testing.T) {
	s := &Stale{Holders: []StaleHolder{{Name: "b", Since: noon.Add(time.Second)}},
		Away: []AwayFromMesh{{ID: "moved"}, {ID: "twice", Since: noon}}}
	other := &Stale{Now: time.Now(), LeftOut: 5, Holders: []StaleHolder{{Name: "a", Since: noon}},
		Away: []AwayFromMesh{{ID: "twice", Since: noon.Add(time.Hour), Endpoints: 2}}}
	all := []PeerReply[Stale]{{PeerQuery: PeerQuery{ControlPlane: "other:15012"}, Answer: other}, {PeerQuery: PeerQuery{ControlPlane: "third:15012", Silent: "why"}}}
	require.Equal(t, []string{"moved", "twice"}, s.Missing(all))
	s.Join(all, map[string]bool{"moved": true})
	require.Len(t, s.Holders, 2)
	require.Equal(t, "a", s.Holders[0].Name, "the longest first")
	require.Equal(t, "other:15012", s.Holders[0].ControlPlane)
	require.Len(t, s.Away, 1)
	require.Equal(t, 2, s.Away[0].Endpoints, "it was there last")
	require.Equal(t, []PeerQuery{{ControlPlane: "other:15012", LeftOut: 5}, {ControlPlane: "third:15012", Silent: "why"}}, s.Others)
}
