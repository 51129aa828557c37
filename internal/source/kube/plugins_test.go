package kube

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
)

// TestSecretsOfPlugins checks that the Secret for fetching a plugin's module is read in the plugin's namespace, for the
// accounts of the workloads there that the plugin selects.
func TestSecretsOfPlugins(t *testing.T) {
	meta := func(kind model.Kind, ns, name string, labels map[string]string) model.Meta {
		return model.Meta{Key: model.Key{Kind: kind, Namespace: ns, Name: name}, ResourceVersion: "1", Labels: labels}
	}
	web := map[string]string{"app": "web"}
	plugin := func(ns, name, secret string, selector map[string]string) model.Object {
		return &model.WasmPlugin{
			Meta: meta(model.KindWasmPlugin, ns, name, nil), Selector: selector,
			Module: model.WasmModule{URL: "oci://example.com/auth", PullSecret: secret},
		}
	}
	st := store.New()
	var events []store.Event
	for _, o := range []model.Object{
		&model.Workload{Meta: meta(model.KindPod, "shop", "web", web), ServiceAccount: "web"},
		&model.Workload{Meta: meta(model.KindPod, "shop", "db", nil), ServiceAccount: "db"},
		&model.Workload{Meta: meta(model.KindPod, "bank", "web", web), ServiceAccount: "bank"},
		plugin("shop", "some", "some", web), plugin("shop", "all", "all", nil), plugin("shop", "none", "", nil),
	} {
		events = append(events, store.Event{Key: o.Metadata().Key, Object: o})
	}
	st.Apply(events)
	c := &Credentials{Snapshot: st.Snapshot}
	got := map[string][]string{}
	for k, w := range c.wanted() {
		require.True(t, w.keyAsked)
		got[k.Namespace+"/"+k.Name] = slices.Sorted(maps.Keys(w.readers))
	}
	require.Equal(t, map[string][]string{"shop/some": {"web"}, "shop/all": {"db", "web"}}, got)
}
