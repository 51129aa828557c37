package kube

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
)

// TestRelabelled: an object that is given to another revision is gone from this one, whose statuses leave it alone,
// and it is there again when it is given back.
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
	require.Empty(t, k.Problems(), "they are the other's to tell")
	require.Nil(t, observer.seen)

	require.NoError(t, k.Update(labelled("3", `"istio.io/rev":"default"`, `"web"`)))
	require.NotNil(t, in.Take()[0].Object)
	require.NotNil(t, observer.seen)
}
