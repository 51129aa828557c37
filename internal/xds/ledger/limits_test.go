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

// TestUnsubscribedNamesAreForgotten: a proxy that asks for clusters by name asks for ever new ones. Nothing remains of those that
// it unsubscribed from, whether they exist or not, and also if it ACKs them later.
func TestUnsubscribedNamesAreForgotten(t *testing.T) {
	tab := table.NewOnDemand("t", nil)
	tab.Commit(1, []table.Update{{Type: resource.Cluster, Name: "there0", Resource: &resource.Encoded{Version: "1"}}})
	url := []byte(resource.Cluster.URL())
	for name, late := range map[string]bool{"unsubscribed after the ACK": false, "unsubscribed before the ACK": true} {
		t.Run(name, func(t *testing.T) {
			l := NewAsked(VirtualHosts, names.NewPool(), []*table.State{tab.State()})
			for i := range 3 {
				list := append(listOf("there", 1), listOf(fmt.Sprint("absent", i, "-"), 10)...)
				require.True(t, l.Handle(&Request{TypeURL: url, Subscribe: list}))
				sent := l.Next(nil)
				require.Len(t, sent, 1)
				ack, leave := &Request{TypeURL: url, Nonce: fmt.Append(nil, sent[0].Nonce)}, &Request{TypeURL: url, Unsubscribe: list}
				if late {
					ack, leave = leave, ack
				}
				require.True(t, l.Handle(ack))
				if !late {
					require.Equal(t, len(list), l.granted.Len())
				}
				require.True(t, l.Handle(leave))
				require.Zero(t, l.granted.Len())
			}
		})
	}
	l := NewAsked(VirtualHosts, names.NewPool(), []*table.State{tab.State()})
	require.True(t, l.Handle(&Request{TypeURL: url, Subscribe: listOf("there", 1), Initial: versionsOf(listOf("there", 2))}))
	require.Equal(t, 1, l.granted.Len(), "it subscribes to one of those that it lists")
}

// TestManyRemovalsArePlanned: names of many removed resources are subscribed again before the removals are sent. A search
// of one list for each name of the other would take many seconds.
func TestManyRemovalsArePlanned(t *testing.T) {
	const n = maxNames
	tab := table.New("t")
	var add, drop []table.Update
	list := listOf("a", n)
	for _, name := range list {
		add = append(add, table.Update{Type: resource.Endpoints, Name: string(name), Resource: &resource.Encoded{Version: "1"}})
		drop = append(drop, table.Update{Type: resource.Endpoints, Name: string(name)})
	}
	tab.Commit(1, add)
	l := New(Delta, VirtualHosts, names.NewPool(), []*table.State{tab.State()})
	url := []byte(resource.EndpointsURL)
	require.True(t, l.Handle(&Request{TypeURL: url, Subscribe: list}))
	first := l.Next(nil)
	require.Len(t, first, 1)
	tab.Commit(2, drop)
	l.Update([]*table.State{tab.State()})
	require.True(t, l.Handle(&Request{TypeURL: url, Nonce: fmt.Append(nil, first[0].Nonce), Subscribe: list}))
	sent := l.Next(nil)
	require.Len(t, sent, 1)
	require.Len(t, sent[0].Removed, n)
}
