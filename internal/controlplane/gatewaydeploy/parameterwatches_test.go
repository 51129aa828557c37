package gatewaydeploy

import (
	"context"
	"fmt"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic/fake"

	"github.com/moonsail/moonsail/test/logtext"
)

// TestParameterWatches checks that each ConfigMap that Gateways name has one watch while one of them names it, and that a
// namespace has no more watches than its limit.
func TestParameterWatches(t *testing.T) {
	var log logtext.Buffer
	ctx, cancel := context.WithCancel(t.Context())
	kinds := map[schema.GroupVersionResource]string{configMaps: "ConfigMapList"}
	term := &term{
		Controller: &Controller{Log: slog.New(slog.NewTextHandler(&log, nil))}, inventory: newInventory(),
		dynamic: fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds),
	}
	defer term.watching.Wait()
	defer cancel()
	w := newParameterWatches(term)
	name := func(name string) types.NamespacedName { return types.NamespacedName{Namespace: "shop", Name: name} }
	set := func(gateway, configMap string) {
		spec := map[string]any{"gatewayClassName": "istio"}
		if configMap != "" {
			spec["infrastructure"] = map[string]any{"parametersRef": map[string]any{"group": "", "kind": "ConfigMap", "name": configMap}}
		}
		o := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
		o.SetNamespace("shop")
		o.SetName(gateway)
		term.inventory.seeGateway(o)
		w.follow(ctx, name(gateway))
	}
	remove := func(gateway string) {
		term.inventory.forgetGateway(name(gateway))
		w.follow(ctx, name(gateway))
	}
	set("a", "one")
	set("b", "one")
	set("b", "one")
	require.Equal(t, 2, w.watches[name("one")].gateways)
	require.Equal(t, map[string]int{"shop": 1}, w.running)
	remove("a")
	require.Equal(t, 1, w.watches[name("one")].gateways)
	set("b", "two")
	require.NotContains(t, w.watches, name("one"))
	require.Equal(t, map[string]int{"shop": 1}, w.running)
	set("b", "")
	require.Empty(t, w.watches)
	require.Empty(t, w.running)

	for i := range maxParameterWatches + 1 {
		set(fmt.Sprint("g", i), fmt.Sprint("c", i))
	}
	last := name(fmt.Sprint("c", maxParameterWatches))
	require.Equal(t, map[string]int{"shop": maxParameterWatches}, w.running)
	require.Nil(t, w.watches[last].stop)
	require.Contains(t, log.String(), "configmap=shop/c100")
	remove("g0")
	require.NotNil(t, w.watches[last].stop, "it takes the free place")
	require.Equal(t, map[string]int{"shop": maxParameterWatches}, w.running)
}
