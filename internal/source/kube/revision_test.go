package kube

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
)

// TestRelabelled checks that an object with another revision's label leaves this revision, which writes no status for it,
// and returns with the label.
func TestRelabelled(t *testing.T) {
	k, in, _ := testSink(t, model.KindDestinationRule)
	k.decoder.Revision = "default"
	observer := &lastSeen{}
	k.observer = observer
	labelled := func(version, labels, host string) *rawObject {
		o := &rawObject{}
		require.NoError(t, json.Unmarshal([]byte(`{"apiVersion":"networking.istio.io/v1","kind":"DestinationRule",
			"metadata":{"name":"web","namespace":"shop","resourceVersion":"`+version+`","labels":{`+labels+`}},"spec":{"host":`+host+`}}`), o))
		return o
	}
	require.NoError(t, k.Add(labelled("1", ``, `"web"`)))
	require.NotNil(t, in.Take()[0].Object)
	require.NotNil(t, observer.seen)

	require.NoError(t, k.Update(labelled("2", `"istio.io/rev":"canary"`, `7`)))
	events := in.Take()
	require.Len(t, events, 1)
	require.Nil(t, events[0].Object)
	require.Empty(t, k.Problems(), "the other revision reports them")
	require.Nil(t, observer.seen)

	require.NoError(t, k.Update(labelled("3", `"istio.io/rev":"default"`, `"web"`)))
	require.NotNil(t, in.Take()[0].Object)
	require.NotNil(t, observer.seen)
}

// TestRelabelledGateway checks that a Gateway with another revision's label stays in the mesh, because its routers may still
// be connected here, while the other revision writes its status.
func TestRelabelledGateway(t *testing.T) {
	k, in, _ := testSink(t, model.KindKubernetesGateway)
	k.decoder.Revision = "default"
	observer := &lastSeen{}
	k.observer = observer
	labelled := func(version, labels string) *rawObject {
		o := &rawObject{}
		require.NoError(t, json.Unmarshal([]byte(`{"apiVersion":"gateway.networking.k8s.io/v1","kind":"Gateway",
			"metadata":{"name":"web","namespace":"shop","resourceVersion":"`+version+`","labels":{`+labels+`}},
			"spec":{"gatewayClassName":"istio","listeners":[{"name":"http","port":80,"protocol":"HTTP"}]}}`), o))
		return o
	}
	require.NoError(t, k.Add(labelled("1", ``)))
	require.NotNil(t, in.Take()[0].Object)
	require.NotNil(t, observer.seen)

	require.NoError(t, k.Update(labelled("2", `"istio.io/rev":"canary"`)))
	for _, e := range in.Take() {
		require.NotNil(t, e.Object)
	}
	require.NotNil(t, k.held[nameOf(labelled("2", ``))].object)
	require.Nil(t, observer.seen)
}
