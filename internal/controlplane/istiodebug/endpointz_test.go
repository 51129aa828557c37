package istiodebug

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
)

// TestPodsAtAddresses checks that members of slices without the name of a Pod are the Pods of the namespace at their addresses.
func TestPodsAtAddresses(t *testing.T) {
	st := store.New()
	meta := func(kind model.Kind, ns, name string) model.Meta {
		return model.Meta{Key: model.Key{Kind: kind, Namespace: ns, Name: name}}
	}
	var events []store.Event
	for _, o := range []model.Object{
		&model.Service{
			Meta: meta(model.KindService, "shop", "leader"), Hostname: "leader.shop.svc.cluster.local",
			Ports: []model.ServicePort{{Name: "http", Number: 80, Protocol: model.ProtocolHTTP}},
		},
		&model.EndpointSlice{
			Meta: meta(model.KindEndpointSlice, "shop", "leader-1"), Service: "leader", Ports: []model.SlicePort{{Name: "http", Number: 8080}},
			Members: []model.SliceEndpoint{
				{Addresses: []string{"10.0.0.1"}, Ready: true}, {Addresses: []string{"10.0.0.2"}, Ready: true}, {Addresses: []string{"10.0.0.3"}, Ready: true},
			},
		},
		&model.Workload{Meta: meta(model.KindPod, "shop", "own"), Addresses: []string{"10.0.0.1"}, ServiceAccount: "db", Ready: true},
		&model.Workload{Meta: meta(model.KindPod, "bank", "foreign"), Addresses: []string{"10.0.0.2"}, ServiceAccount: "db", Ready: true},
		&model.Workload{Meta: meta(model.KindPod, "shop", "host"), Addresses: []string{"10.0.0.3"}, ServiceAccount: "db", Ready: true, HostNetwork: true},
	} {
		events = append(events, store.Event{Key: o.Metadata().Key, Object: o})
	}
	st.Apply(events)
	p := &Pages{Source: Source{Snapshot: st.Snapshot}}
	status, body := p.get("endpointz")
	require.Equal(t, http.StatusOK, status)
	var out map[string]map[string]shards
	require.NoError(t, json.Unmarshal([]byte(body), &out))
	pods := map[string]string{}
	for _, e := range out["leader.shop.svc.cluster.local"]["shop"].Shards["Kubernetes/Kubernetes"] {
		pods[e.Addresses[0]] = e.HostName
	}
	require.Equal(t, map[string]string{"10.0.0.1": "own", "10.0.0.2": "", "10.0.0.3": ""}, pods)
}
