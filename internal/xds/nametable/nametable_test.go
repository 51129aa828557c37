package nametable

import (
	"encoding/hex"
	"testing"

	"github.com/stretchr/testify/require"
)

var entries = []Entry{
	{Host: "api.example.com", Addresses: []string{"240.0.0.1"}},
	{Host: "web.shop.svc.cluster.local", Addresses: []string{"10.0.0.1", "fd00::1"}, Registry: Kubernetes, ShortName: "web", Namespace: "shop"},
}

func TestEncodeAndDecode(t *testing.T) {
	b := Encode(entries[1], entries[0])
	got, err := Decode(b)
	require.NoError(t, err)
	require.Equal(t, entries, got, "in the order of hosts")
	require.Equal(t, b, Encode(entries...))
	for n := range b { // if the table is cut off, it is an error or has fewer entries; it never panics
		if short, err := Decode(b[:n]); err == nil {
			require.Less(t, len(short), len(entries))
		}
	}
}

// TestIstioFormat compares the bytes with Istio's message: field 1 is a map from string to a message with
// the fields ips, registry, shortname and namespace.
func TestIstioFormat(t *testing.T) {
	b := Encode(Entry{Host: "a", Addresses: []string{"1.1.1.1"}, Registry: "r", ShortName: "s", Namespace: "n"})
	require.Equal(t, "0a17"+"0a0161"+"1212"+"0a07312e312e312e31"+"120172"+"1a0173"+"22016e", hex.EncodeToString(b))
}

func FuzzDecode(f *testing.F) {
	f.Add(Encode(entries...))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := Decode(b)
		if err == nil {
			again, err := Decode(Encode(got...))
			require.NoError(t, err)
			require.Len(t, again, len(got))
		}
	})
}
