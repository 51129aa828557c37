package derive

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
	"github.com/moonsail/moonsail/internal/pipeline/store"
)

// headlessChurn is a service without an address of its own whose Pods come and go, and what callers are sent.
type headlessChurn struct {
	d     *Deriver
	st    *store.Store
	key   GroupKey
	ports []model.SlicePort
	had   *Delta // what callers were sent in the beginning
}

const headlessCluster = "outbound|5000||db.shop.svc.cluster.local"

func newHeadless(t *testing.T, protocol model.Protocol) *headlessChurn {
	t.Helper()
	h := &headlessChurn{d: New(model.DefaultMesh(), 1), st: store.New(), ports: []model.SlicePort{{Name: "port", Number: 5000}}}
	h.apply(serviceOf("db", "1", func(s *model.Service) {
		s.Headless, s.Addresses = true, nil
		s.Ports = []model.ServicePort{{Name: "port", Number: 5000, Protocol: protocol}}
	}))
	h.pods("1", "10.2.0.1", "10.2.0.2")
	h.key, _ = h.d.Index().Keys(&model.Proxy{
		Type: model.ProxySidecar, Namespace: "shop", Name: "client", IPs: []string{"10.9.0.1"}, DNSDomain: "shop.svc.cluster.local",
		Interception: model.InterceptRedirect,
	})
	h.had = h.d.Open(h.key)
	return h
}

func (h *headlessChurn) apply(o model.Object) Update {
	_, changes := h.st.Apply([]store.Event{{Key: o.Metadata().Key, Object: o}})
	return h.d.Apply(changes)
}

// pods has the service have Pods at these addresses; it gives what callers are sent.
func (h *headlessChurn) pods(version string, addresses ...string) *Delta {
	var members []model.SliceEndpoint
	for _, a := range addresses {
		members = append(members, model.SliceEndpoint{Addresses: []string{a}, Ready: true, Serving: true})
	}
	s := sliceOf(version, members...)
	s.Ports = h.ports
	return h.apply(s).Deltas[h.key]
}

// TestHeadlessRequests: requests go to where they were going, so that callers are told nothing of Pods that come and go.
func TestHeadlessRequests(t *testing.T) {
	h := newHeadless(t, model.ProtocolHTTP)
	require.Equal(t, ir.DiscoverOriginalDst, h.had.Clusters[headlessCluster].Discovery)
	require.Nil(t, h.pods("2", "10.2.0.1", "10.2.0.3"))
	require.Nil(t, h.pods("3"))
	require.Nil(t, h.pods("4", "10.2.0.4"))
}

var bytesOrEither = []model.Protocol{model.ProtocolTCP, model.ProtocolAuto}

// TestHeadlessBytes: a headless service for bytes, or for either, has a listener for each Pod, and what comes or goes
// adds or removes these alone.
func TestHeadlessBytes(t *testing.T) {
	for _, protocol := range bytesOrEither {
		h := newHeadless(t, protocol)
		h.requireListeners(t, h.pods("2", "10.2.0.2", "10.2.0.3"), map[string]bool{"10.2.0.1_5000": false, "10.2.0.3_5000": true})
		h.requireListeners(t, h.pods("3", "10.2.0.3"), map[string]bool{"10.2.0.2_5000": false})
		h.requireListeners(t, h.pods("4", "10.2.0.3", "10.2.0.4"), map[string]bool{"10.2.0.4_5000": true})
	}
}

// TestHeadlessReadiness: a Pod has its listener from when it is there until it is gone, whatever becomes of it between, as
// connections end with the listener that they came by.
func TestHeadlessReadiness(t *testing.T) {
	for _, protocol := range bytesOrEither {
		h := newHeadless(t, protocol)
		h.requireListeners(t, h.pod("2", model.SliceEndpoint{}), map[string]bool{"10.2.0.3_5000": true})
		for i, state := range []model.SliceEndpoint{{Ready: true, Serving: true}, {}, {Ready: true, Serving: true}, {Serving: true, Terminating: true}, {Terminating: true}} {
			h.requireListeners(t, h.pod(fmt.Sprint(i+3), state), map[string]bool{})
		}
		h.requireListeners(t, h.pods("9", "10.2.0.1", "10.2.0.2"), map[string]bool{"10.2.0.3_5000": false})
	}
}

// pod has a third Pod in some state; it gives what callers are sent.
func (h *headlessChurn) pod(version string, third model.SliceEndpoint) *Delta {
	third.Addresses = []string{"10.2.0.3"}
	s := sliceOf(version, third)
	for _, a := range []string{"10.2.0.1", "10.2.0.2"} {
		s.Members = append(s.Members, model.SliceEndpoint{Addresses: []string{a}, Ready: true, Serving: true})
	}
	s.Ports = h.ports
	return h.apply(s).Deltas[h.key]
}

// requireListeners checks which listeners come (true) or go, and that nothing else is another than before.
func (h *headlessChurn) requireListeners(t *testing.T, delta *Delta, want map[string]bool) {
	t.Helper()
	got := map[string]bool{}
	for name, l := range delta.Listeners {
		got[name] = l != nil
	}
	require.Equal(t, want, got)
	require.Equal(t, len(delta.Listeners)+len(delta.Clusters)+len(delta.RouteConfigs)+len(delta.VirtualHosts), delta.Len(), "%+v", delta)
	requireAsBefore(t, h.had.Clusters, delta.Clusters)
	requireAsBefore(t, h.had.RouteConfigs, delta.RouteConfigs)
	requireAsBefore(t, h.had.VirtualHosts, delta.VirtualHosts)
}

// requireAsBefore: what is derived with the Pods, and no other than before, has the same bytes, and is not sent.
func requireAsBefore[V any](t *testing.T, had, now map[string]*V) {
	t.Helper()
	for name, v := range now {
		require.Equal(t, had[name], v, name)
	}
}
