package kube

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/moonsail/moonsail/internal/config"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
)

// TestProblemsOfAnObject checks that an object has the problems of its newest version, although an earlier one is in force.
func TestProblemsOfAnObject(t *testing.T) {
	const valid, invalid = `{"rules":[{}]}`, `{"rules":[{"from":[{"source":{"ipBlocks":["here"]}}]}]}`
	in := store.NewIntake(SourceName)
	s := &Source{Intake: in, Meter: newCounts(), Log: slog.New(slog.DiscardHandler), Decoder: config.Decoder{MeshConfigMap: "istio-canary"}}
	s.log.log, s.status.log = s.Log, s.Log
	sinks := map[model.Kind]*sink{}
	for _, r := range append(builtin("istio-system", "istio-canary"), customs()...) {
		if r.Read {
			sinks[r.Model] = s.sink(r)
		}
	}
	mesh := func(version, text string) *corev1.ConfigMap {
		return &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: "istio-canary", Namespace: "istio-system", ResourceVersion: version}, Data: map[string]string{"mesh": text},
		}
	}
	for name, c := range map[string]struct {
		key       model.Key
		good, bad any
	}{
		"invalid field": {
			model.Key{Kind: model.KindAuthorizationPolicy, Namespace: "shop", Name: "web"},
			security(t, model.KindAuthorizationPolicy, "1", valid), security(t, model.KindAuthorizationPolicy, "2", invalid),
		},
		"wrong type": {
			model.Key{Kind: model.KindPeerAuthentication, Namespace: "shop", Name: "web"},
			security(t, model.KindPeerAuthentication, "1", `{}`), security(t, model.KindPeerAuthentication, "2", `{"mtls":[]}`),
		},
		"mesh configuration of another name": {
			model.Key{Kind: model.KindMeshConfig, Namespace: "istio-system", Name: model.MeshConfigName}, mesh("1", "trustDomain: a.example"), mesh("2", "trustDomain: ["),
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := sinks[c.key.Kind]
			require.NoError(t, k.Add(c.good))
			events := in.Take()
			require.Len(t, events, 1)
			require.Equal(t, c.key, events[0].Key)
			require.Empty(t, s.ProblemsOf(c.key))
			require.NoError(t, k.Update(c.bad))
			require.Empty(t, in.Take(), "the earlier version stays in force")
			require.True(t, s.ProblemsOf(c.key).HasErrors())
			other := c.key
			other.Name = "other"
			require.Empty(t, s.ProblemsOf(other))
			require.NoError(t, k.Delete(c.bad))
			require.Len(t, in.Take(), 1)
			require.Empty(t, s.ProblemsOf(c.key))
		})
	}
}
