package gatewaydeploy

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/moonsail/moonsail/internal/config"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
)

const gatewayWithSets = `
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: web, namespace: shop}
spec:
  gatewayClassName: istio
  listeners: [{name: http, port: 80, protocol: HTTP}]
  allowedListeners: {namespaces: {from: Selector, selector: {matchLabels: {listens: "yes"}}}}`

const listenerSets = `
apiVersion: v1
kind: Namespace
metadata: {name: team, labels: {listens: "yes"}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: ListenerSet
metadata: {name: a, namespace: team}
spec:
  parentRef: {name: web, namespace: shop}
  listeners: [{name: http, port: 8080, protocol: HTTP}, {name: same, port: 80, protocol: HTTP, hostname: a.example.com}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: ListenerSet
metadata: {name: b, namespace: stranger}
spec:
  parentRef: {name: web, namespace: shop}
  listeners: [{name: http, port: 9090, protocol: HTTP}]`

func storeOf(t *testing.T, text string) *store.Store {
	t.Helper()
	st := store.New()
	for doc := range strings.SplitSeq(text, "\n---") {
		o, problems := config.Decoder{}.FromYAML([]byte(doc))
		require.NotNil(t, o, "%v", problems)
		st.Apply([]store.Event{{Key: o.Metadata().Key, Object: o}})
	}
	return st
}

// TestPortsOfListenerSets checks that the Service has the ports of the ListenerSets that the Gateway accepts.
func TestPortsOfListenerSets(t *testing.T) {
	o := &unstructured.Unstructured{}
	require.NoError(t, yaml.Unmarshal([]byte(gatewayWithSets), &o.Object))
	g, err := readGateway(o)
	require.NoError(t, err)
	snap := storeOf(t, gatewayWithSets+"\n---"+listenerSets).Snapshot()
	p, err := planOf(g, withListenerSets(snap, g))
	require.NoError(t, err)
	var ports []string
	for _, s := range p.ports {
		ports = append(ports, s.Name)
	}
	require.Equal(t, []string{"status-port", "http", "http-8080"}, ports)

	set := snap.Get(model.Key{Kind: model.KindListenerSet, Namespace: "team", Name: "a"})
	which, all := concerned(snap, &store.Change{Key: set.Metadata().Key, New: set})
	require.False(t, all)
	require.Equal(t, []types.NamespacedName{{Namespace: "shop", Name: "web"}}, which)
	which, _ = concerned(snap, &store.Change{Key: model.Key{Kind: model.KindNamespace, Name: "team"}})
	require.Equal(t, []types.NamespacedName{{Namespace: "shop", Name: "web"}}, which)
	which, all = concerned(snap, &store.Change{Key: model.Key{Kind: model.KindPod, Namespace: "shop", Name: "a"}})
	require.False(t, all)
	require.Empty(t, which)
	_, all = concerned(snap, &store.Change{Key: model.Key{Kind: model.KindProxyConfig, Namespace: "shop", Name: "a"}})
	require.True(t, all)
}
