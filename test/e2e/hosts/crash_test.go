//go:build linux

package hosts

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/sidecar/intercept"
)

// TestCrashesWithDefaultRetries checks crashes of Envoys with several workers and Istio's default retries, which do not
// repeat a request that may have been processed. Only requests may fail that were in progress when the Envoy died, or
// began before their caller's Envoy had read the end of the connection. All are intercepted with iptables.
func TestCrashesWithDefaultRetries(t *testing.T) {
	common, policy := []string{}, 0
	for line := range strings.Lines(shopCommon) {
		if strings.Contains(line, "defaultHttpRetryPolicy") {
			policy++
			continue
		}
		common = append(common, line)
	}
	require.Equal(t, 1, policy)
	m := startShopWith(t, strings.Join(common, ""), 2, intercept.IPTables)
	m.requireInterceptedBy(t)
	eventually(t, "the front page", m.front)
	l := startLoad(t, m.shopper().Host, "http://"+anyService+"/", "frontend")
	l.requireNoneLost("nothing happens")
	for i, service := range []string{"catalog", "frontend", "ratings", "catalog", "frontend"} {
		from, to := m.killEnvoy(t, m.of(service)[i%replicas])
		l.requireOthersAnswered("an Envoy of "+service+" dies", from, to)
	}
}
