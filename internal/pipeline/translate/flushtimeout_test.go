package translate

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

// TestFlushTimeout checks how long a client of HTTP/2 may leave the end of a response in the proxy's memory
// (CVE-2020-12604). Without a flush timeout, Envoy uses the stream idle timeout.
func TestFlushTimeout(t *testing.T) {
	idle := func(d time.Duration) *model.ConnectionSettings {
		return &model.ConnectionSettings{StreamIdleTimeout: &d}
	}
	for name, tc := range map[string]struct {
		chain ir.HTTPChain
		idle  time.Duration
		flush time.Duration // 0: that of idle
	}{
		"gateway":                            {chain: ir.HTTPChain{Gateway: true}, flush: 5 * time.Minute},
		"gateway with other settings":        {chain: ir.HTTPChain{Gateway: true, Connections: &model.ConnectionSettings{}}, flush: 5 * time.Minute},
		"gateway with a stream idle timeout": {chain: ir.HTTPChain{Gateway: true, Connections: idle(time.Minute)}, idle: time.Minute},
		"gateway without a limit":            {chain: ir.HTTPChain{Gateway: true, Connections: idle(0)}},
		"sidecar, inbound":                   {chain: ir.HTTPChain{Inbound: true}},
		"sidecar, outbound":                  {},
	} {
		t.Run(name, func(t *testing.T) {
			tc.chain.StatPrefix, tc.chain.RouteConfig = "x", "80"
			m := managerOf(t, &tc.chain)
			require.Equal(t, tc.idle, m.StreamIdleTimeout.AsDuration())
			require.Equal(t, tc.flush, m.StreamFlushTimeout.AsDuration())
			require.Equal(t, tc.flush != 0, m.StreamFlushTimeout != nil)
		})
	}
}
