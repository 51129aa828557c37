package model

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOriginsSets(t *testing.T) {
	a, b, c := Key{KindService, "shop", "a"}, Key{KindService, "shop", "b"}, Key{KindGateway, "shop", "a"}
	require.Nil(t, OriginsOf())
	ab := OriginsOf(b, a, b)
	require.Equal(t, []Key{a, b}, ab.Keys())
	require.Same(t, ab, OriginsOf(a, b), "equal sets are one")
	require.True(t, ab.Has(a) && !ab.Has(c))
	require.Same(t, OriginsOf(c, a, b), ab.Union(OriginsOf(c)))
	require.Same(t, OriginsOf(b), ab.Intersect(OriginsOf(c, b)))
	require.Nil(t, ab.Intersect(OriginsOf(c)))
	var none *Origins
	require.False(t, none.Has(a))
	require.Same(t, ab, none.Union(ab))
	require.True(t, none.Equal(OriginsOf()))

	for key, want := range map[Key]bool{a: true, {KindPod, "shop", "a"}: false, {KindMeshConfig, "istio-system", MeshConfigName}: false, {KindConfigMap, "shop", "roots"}: true} {
		require.Equal(t, want, key.IsOrigin(), key)
	}
}

// TestOriginListParts checks that objects read before a mark are origins of a later value only if they are read again.
func TestOriginListParts(t *testing.T) {
	a, b := Key{KindService, "shop", "a"}, Key{KindService, "shop", "b"}
	var l OriginList
	l.Add(a)
	mark := l.Mark()
	l.Add(a)
	l.Add(b)
	l.Add(b)
	require.Equal(t, []Key{a, b}, l.Since(mark).Keys())
	l.Drop(mark)
	require.Nil(t, l.Since(mark))
	require.Equal(t, []Key{a}, l.Since(0).Keys())
}

func TestSameAudience(t *testing.T) {
	web, api := map[string]string{"app": "web"}, map[string]string{"app": "api"}
	for name, tc := range map[string]struct {
		a, b Object
		want bool
	}{
		"rules alone":         {&AuthorizationPolicy{Selector: web}, &AuthorizationPolicy{Selector: web, Rules: []AuthorizationRule{{}}}, true},
		"another selector":    {&AuthorizationPolicy{Selector: web}, &AuthorizationPolicy{Selector: api}, false},
		"no selector":         {&Telemetry{Selector: web}, &Telemetry{}, false},
		"a Gateway instead":   {&AuthorizationPolicy{}, &AuthorizationPolicy{Targets: Targets{Targeted: true, Gateways: []string{"edge"}}}, false},
		"another mode":        {&PeerAuthentication{Mode: MTLSStrict}, &PeerAuthentication{Mode: MTLSPermissive}, true},
		"a mode callers know": {&PeerAuthentication{Mode: MTLSStrict}, &PeerAuthentication{Mode: MTLSDisable}, false},
		"a Sidecar":           {&Sidecar{Selector: web}, &Sidecar{Selector: api}, false},
		"of no selector":      {&VirtualService{Hosts: []Host{"a"}}, &VirtualService{}, true},
	} {
		require.Equal(t, tc.want, SameAudience(tc.a, tc.b), name)
	}
}
