//go:build defects

package chaos_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/base/defect"
	"github.com/moonsail/moonsail/internal/lab/chaos"
	"github.com/moonsail/moonsail/test/kubetest"
	"github.com/moonsail/moonsail/test/labtest"
)

// TestChaosFindsDefects plants each defect in the control planes. Those that are not listed do no harm here: streams that
// are not woken are looked at every 2 s, and endpoints follow their clusters at once.
func TestChaosFindsDefects(t *testing.T) {
	server, err := kubetest.Binary()
	require.NoError(t, err)
	for _, tt := range []struct {
		defect defect.Defect
		kinds  []string // of violations: one of them
		kube   bool
		seed   uint64
		time   time.Duration
	}{
		{defect.PolicyGap, []string{"request"}, true, 21, time.Minute},
		{defect.StaleEndpoints, []string{"request", "ledger"}, false, 5, time.Minute},
		{defect.WrongVersion, []string{"request", "ledger"}, false, 5, time.Minute},
		{defect.BlockingNACK, []string{"request", "ledger"}, false, 5, time.Minute},
		{defect.Resurrection, []string{"final state"}, true, 5, 20 * time.Second},
		{defect.StreamLeak, []string{"leak"}, false, 5, 20 * time.Second},
		{defect.EarlyRemoval, []string{"request"}, false, 9, 90 * time.Second},
		{defect.EarlyACK, []string{"ledger"}, false, 6, time.Minute},
	} {
		t.Run(string(tt.defect), func(t *testing.T) {
			labtest.Temporary(t)
			t.Setenv(defect.Variable, string(tt.defect))
			o := chaos.Options{Time: tt.time, Proxies: 6, Seed: tt.seed}
			if tt.kube {
				o.APIServer = []string{server}
			}
			o.Programs, o.Envoy = labtest.Sidecars(t)
			r, err := chaos.Run(t.Context(), o)
			require.NoError(t, err)
			require.NotEmpty(t, r.Violations)
			require.Contains(t, tt.kinds, r.Violations[0].Kind, "%+v", r.Violations[0])
			t.Logf("%d violations, first %+v", r.Found(), r.Violations[0])
		})
	}
}
