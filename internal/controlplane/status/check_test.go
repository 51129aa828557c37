package status

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/diagnose/explain"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/changelog"
	"github.com/moonsail/moonsail/internal/pipeline/store"
	"github.com/moonsail/moonsail/internal/xds/distribution"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// TestRefusedListenersAreTheirGateways checks that a refused listener is reported by the Gateways that it is made from.
func TestRefusedListenersAreTheirGateways(t *testing.T) {
	st := store.New()
	gateway := func(name string, port uint32) *model.Gateway {
		return &model.Gateway{
			Meta:     model.Meta{Key: model.Key{Kind: model.KindGateway, Namespace: "edge", Name: name}, ResourceVersion: "1"},
			Selector: map[string]string{"istio": "edge"},
			Servers:  []model.GatewayServer{{Port: model.GatewayPort{Number: port, Name: "http", Protocol: model.ProtocolHTTP}}},
		}
	}
	for _, g := range []*model.Gateway{gateway("a", 80), gateway("b", 80), gateway("c", 81)} {
		st.Apply([]store.Event{{Key: g.Key, Object: g}})
	}
	tab := table.New("t")
	tab.Commit(1, []table.Update{{Type: resource.Listener, Name: "0.0.0.0_80", Resource: resource.EncodeBytes(resource.Listener, "0.0.0.0_80", nil),
		Origins: model.OriginsOf(gateway("a", 80).Key, gateway("b", 80).Key)}})
	r := &Reporter{Snapshot: st.Snapshot, Refusals: func() []*distribution.Refusal {
		return []*distribution.Refusal{{Type: resource.Listener, Name: "0.0.0.0_80", Message: "cannot bind", Proxies: 2, About: []distribution.Part{{
			Type: resource.Listener, Entry: tab.State().Get(resource.Listener, "0.0.0.0_80"),
			Proxy: &model.Proxy{Type: model.ProxyRouter, Namespace: "edge", Labels: map[string]string{"istio": "edge"}},
		}}}}
	}, Causes: (&explain.Explainer{Changes: changelog.New(1, slog.New(slog.DiscardHandler), nil)}).Causes}
	want := refusal{what: "LDS 0.0.0.0_80", message: "cannot bind", proxies: 2, shared: 1, doubt: true, mesh: true}
	require.Equal(t, map[model.Key]refusal{gateway("a", 80).Key: want, gateway("b", 80).Key: want}, r.refused(st.Snapshot()))
}

// TestCrossCheckKnowsTheRootNamespace checks that a policy of the root namespace may select workloads of all namespaces, although the
// mesh has no MeshConfig.
func TestCrossCheckKnowsTheRootNamespace(t *testing.T) {
	st := store.New()
	labels := map[string]string{"app": "web"}
	policy := &model.AuthorizationPolicy{Meta: model.Meta{Key: model.Key{Kind: model.KindAuthorizationPolicy, Namespace: "mesh", Name: "web"}}, Selector: labels}
	st.Apply([]store.Event{{Key: policy.Key, Object: policy}})
	for ns, labels := range map[string]map[string]string{"shop": labels, "mesh": {"app": "other"}} {
		w := &model.Workload{Meta: model.Meta{Key: model.Key{Kind: model.KindPod, Namespace: ns, Name: "pod"}, Labels: labels}}
		st.Apply([]store.Event{{Key: w.Key, Object: w}})
	}
	mesh := model.DefaultMesh()
	require.NotEmpty(t, crossCheck(st.Snapshot(), mesh)[policy.Key])
	mesh.RootNamespace = "mesh"
	require.Empty(t, crossCheck(st.Snapshot(), mesh)[policy.Key])
}

// TestWaitingDelaysNoAnalysis checks that the share of a CPU that analysis may use does not count the time until other control
// planes answer.
func TestWaitingDelaysNoAnalysis(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st, wait := store.New(), reportTimeout
		c := &checker{tracker: NewTracker(), mesh: model.DefaultMesh(), here: &Reporter{
			Snapshot: st.Snapshot,
			Refusals: func() []*distribution.Refusal { <-time.After(wait); return nil },
			Causes:   (&explain.Explainer{Changes: changelog.New(1, slog.New(slog.DiscardHandler), nil)}).Causes,
		}}
		for _, name := range []string{"first", "second"} {
			k := model.Key{Kind: model.KindPod, Namespace: "shop", Name: name}
			st.Apply([]store.Event{{Key: k, Object: &model.Workload{Meta: model.Meta{Key: k}}}})
			c.look(t.Context(), time.Now())
			require.Equal(t, st.Snapshot().Revision, c.analyzed, name)
		}
		k := model.Key{Kind: model.KindPod, Namespace: "shop", Name: "at once"}
		wait = 0
		st.Apply([]store.Event{{Key: k, Object: &model.Workload{Meta: model.Meta{Key: k}}}})
		c.look(t.Context(), time.Now())
		require.NotEqual(t, st.Snapshot().Revision, c.analyzed, "analysis runs at most once a second")
	})
}
