//go:build linux

package hosts

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/sidecar/intercept"
)

// TestCrashesWithDefaultRetries: with Istio's default of retries, which does not make a request again
// that may have been answered, and several workers, what a crash loses is what was under way when the
// Envoy died, or until its callers' had read that, and no request that came later. All are intercepted by iptables.
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
