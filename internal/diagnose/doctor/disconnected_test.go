package doctor

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestDisconnected checks that the check names the proxies that have been disconnected for the longest time, and waits for those
// that may connect again.
func TestDisconnected(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	p := &plane{connected: &Connected{Now: now, Disconnected: []DisconnectedProxy{{Name: "new.shop", Since: now.Add(-time.Second)}}}}
	require.Equal(t, checked(), p.disconnected())
	for i, name := range []string{"a.shop", "b.shop", "c.shop", "d.shop"} {
		p.connected.Disconnected = append(p.connected.Disconnected, DisconnectedProxy{Name: name, Since: now.Add(-time.Duration(i+1) * time.Minute), Settled: 7})
	}
	f := p.disconnected().findings
	require.Len(t, f, 1)
	require.Equal(t, Critical, f[0].Severity)
	require.Len(t, f[0].Evidence, 4)
	require.Regexp(t, `^d.shop: disconnected for .*, since .*; it had revision 7$`, f[0].Evidence[0])
	require.Equal(t, "and 1 more proxy", f[0].Evidence[3])
}
