package ledger

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/xds/names"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// listOf returns n names that begin with a prefix.
func listOf(prefix string, n int) (out [][]byte) {
	for i := range n {
		out = append(out, fmt.Append(nil, prefix, i))
	}
	return out
}

func versionsOf(list [][]byte) (out []NameVersion) {
	for _, n := range list {
		out = append(out, NameVersion{Name: n, Version: []byte("1")})
	}
	return out
}

// TestTooManyNamesEndTheStream: the bounds are for all types together, in names and in bytes, and names
// that were unsubscribed do not count.
func TestTooManyNamesEndTheStream(t *testing.T) {
	edsURL, rdsURL := []byte(resource.EndpointsURL), []byte(resource.RouteConfig.URL())
	half := maxNames / 2
	long := strings.Repeat("x", 1<<10)
	for name, c := range map[string]struct {
		protocol Protocol
		requests []*Request
		err      string
	}{
		"exactly the limit": {Delta, []*Request{{TypeURL: edsURL, Subscribe: listOf("a", half)}, {TypeURL: rdsURL, Subscribe: listOf("a", half)}}, ""},
		"the same again":    {Delta, []*Request{{TypeURL: edsURL, Subscribe: listOf("a", maxNames)}, {TypeURL: edsURL, Subscribe: listOf("a", maxNames)}}, ""},
		"replaced": {Delta, []*Request{{TypeURL: edsURL, Subscribe: listOf("a", maxNames)},
			{TypeURL: edsURL, Unsubscribe: listOf("a", half), Subscribe: listOf("b", half)}}, ""},
		"two types": {Delta, []*Request{{TypeURL: edsURL, Subscribe: listOf("a", half)}, {TypeURL: rdsURL, Subscribe: listOf("a", half+1)}},
			"subscriptions: 65537 names with 371002 bytes: the limit of a stream is 65536 names and 8388608 bytes"},
		"one request": {Delta, []*Request{{TypeURL: edsURL, Subscribe: listOf("a", maxNames+1)}}, "subscriptions of one request: 65537 names"},
		"bytes":       {Delta, []*Request{{TypeURL: edsURL, Subscribe: listOf(long, 8<<10)}}, "subscriptions of one request: 8192 names"},
		"bytes of two requests": {Delta, []*Request{{TypeURL: edsURL, Subscribe: listOf(long, 5<<10)}, {TypeURL: edsURL, Subscribe: listOf("y"+long, 5<<10)}},
			"subscriptions: 10240 names"},
		"listed":             {Delta, []*Request{{TypeURL: edsURL, Initial: versionsOf(listOf("a", maxNames+1))}}, "initial_resource_versions that the mesh does not have: 65537 names"},
		"state-of-the-world": {Sotw, []*Request{{TypeURL: edsURL, Names: listOf("a", maxNames+1)}}, "subscriptions of one request: 65537 names"},
	} {
		t.Run(name, func(t *testing.T) {
			l := New(c.protocol, VirtualHosts, names.NewPool(), []*table.State{table.New("t").State()})
			for _, r := range c.requests {
				require.NoError(t, l.Err())
				require.True(t, l.Handle(r))
			}
			if c.err == "" {
				require.NoError(t, l.Err())
				return
			}
			require.ErrorContains(t, l.Err(), c.err)
			require.ErrorAs(t, l.Err(), new(*TooManyNamesError))
		})
	}
}

// TestKnownNamesAreNoLimit: a proxy that reconnects may list everything that the mesh has.
func TestKnownNamesAreNoLimit(t *testing.T) {
	tab := table.New("t")
	var updates []table.Update
	list := listOf("a", maxNames+1)
	for _, n := range list {
		updates = append(updates, table.Update{Type: resource.Cluster, Name: string(n), Resource: &resource.Encoded{Version: "1"}})
	}
	tab.Commit(1, updates)
	l := New(Delta, VirtualHosts, names.NewPool(), []*table.State{tab.State()})
	require.True(t, l.Handle(&Request{TypeURL: []byte(resource.Cluster.URL()), Initial: versionsOf(list)}))
	require.NoError(t, l.Err())
}

// TestRenamedRequests: only admitted requests are renamed, and what is stored for them counts as subscribed.
func TestRenamedRequests(t *testing.T) {
	begin := func() *Ledger {
		return New(Delta, VirtualHosts, names.NewPool(), []*table.State{table.New("t").State()})
	}
	url := []byte(resource.EndpointsURL)
	l := begin()
	require.True(t, l.HandleRenamed(&Request{TypeURL: url, Subscribe: listOf("a", maxNames+1)}, func(*Request) (int, int) {
		t.Error("the request has too many names")
		return 0, 0
	}))
	require.Error(t, l.Err())
	for stored, says := range map[int]string{maxNames - 1: "", maxNames: "subscriptions: 65537 names with 1001 bytes"} {
		l = begin()
		require.True(t, l.HandleRenamed(&Request{TypeURL: url, Subscribe: listOf("a", 2)}, func(r *Request) (int, int) {
			r.Subscribe = [][]byte{[]byte("b")}
			return stored, 1000
		}))
		if says == "" {
			require.NoError(t, l.Err())
			continue
		}
		require.ErrorContains(t, l.Err(), says)
	}
}
