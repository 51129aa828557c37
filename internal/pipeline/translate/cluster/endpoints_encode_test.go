package cluster

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
	"github.com/moonsail/moonsail/internal/pipeline/translate/envoyproto"
)

// TestEncodeEndpoints checks that the encoded endpoints are the bytes of their message.
func TestEncodeEndpoints(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 100 {
		v := anyEndpoints(r)
		want, err := envoyproto.Deterministic.Marshal(Endpoints(v))
		require.NoError(t, err)
		got, err := EncodeEndpoints(v)
		require.NoError(t, err)
		require.True(t, bytes.Equal(want, got), "%+v\nwant %x\ngot  %x", v, want, got)
	}
}

// TestEncodeEndpointsError checks that content that a message cannot have is an error.
func TestEncodeEndpointsError(t *testing.T) {
	const notUTF8 = "\xff"
	good := func() *ir.Endpoints { return manyEndpoints(3) }
	for name, spoil := range map[string]func(*ir.Endpoints){
		"cluster":  func(v *ir.Endpoints) { v.Cluster = notUTF8 },
		"locality": func(v *ir.Endpoints) { v.Localities[0].Locality.Zone = notUTF8 },
		"workload": func(v *ir.Endpoints) { v.Localities[0].Endpoints[1].Workload = notUTF8 },
		"path":     func(v *ir.Endpoints) { v.Localities[0].Endpoints[1].Address = "/" + notUTF8 },
	} {
		v := good()
		spoil(v)
		_, want := envoyproto.Deterministic.Marshal(Endpoints(v))
		require.Error(t, want, name)
		_, err := EncodeEndpoints(v)
		require.Error(t, err, name)
	}
	_, err := EncodeEndpoints(good())
	require.NoError(t, err)
}

// anyEndpoints varies everything in which endpoints may differ. Few values, so that successive endpoints share some.
func anyEndpoints(r *rand.Rand) *ir.Endpoints {
	v := &ir.Endpoints{Cluster: pick(r, "outbound|80||reviews.shop.svc.cluster.local", ""), MarksPlaintext: r.IntN(2) == 0}
	for range r.IntN(4) {
		l := ir.LocalityEndpoints{Priority: pick[uint32](r, 0, 1, 300), Weight: pick[uint32](r, 0, 1, 200, 1<<32-1)}
		l.Locality = model.Locality{Region: pick(r, "", "eu"), Zone: pick(r, "", "a"), Subzone: pick(r, "", "1")}
		for range pick(r, 0, 1, 2, 5, 150) {
			l.Endpoints = append(l.Endpoints, anyEndpoint(r))
		}
		v.Localities = append(v.Localities, l)
	}
	return v
}

func anyEndpoint(r *rand.Rand) ir.Endpoint {
	e := ir.Endpoint{
		Address: pick(r, "10.0.0.1", "192.168.100.200", "fd00::1", "unix:///run/a", "/run/b", "@abstract", "a.example.com"),
		Port:    pick[uint32](r, 0, 80, 8080, 65535), Weight: pick[uint32](r, 0, 1, 1, 1, 2, 300, 1<<31, 1<<32-1),
		MTLS: r.IntN(2) == 0,
	}
	if r.IntN(4) > 0 {
		e.Workload, e.Namespace, e.Canonical = pick(r, "", "reviews-v1"), pick(r, "", "shop"), pick(r, "", "reviews")
		e.Revision, e.Version = pick(r, "", "latest", "v1"), pick(r, "", "v1", "v2")
		e.App, e.Cluster = pick(r, "", "reviews", "other"), pick(r, "", "Kubernetes")
	}
	return e
}

func pick[T any](r *rand.Rand, list ...T) T { return list[r.IntN(len(list))] }
