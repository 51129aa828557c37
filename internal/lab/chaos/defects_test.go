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

// TestChaosFindsDefects plants defects in the control planes. Each run must find a violation.
func TestChaosFindsDefects(t *testing.T) {
	for _, tt := range []struct {
		defect defect.Defect
		kinds  []string // of the violations; one of them must be found
	}{
		{defect.PolicyGap, []string{"request", "ledger"}},
		{defect.StaleEndpoints, []string{"request", "ledger", "final state"}},
	} {
		t.Run(string(tt.defect), func(t *testing.T) {
			labtest.Temporary(t)
			t.Setenv(defect.Variable, string(tt.defect))
			server, err := kubetest.Binary()
			require.NoError(t, err)
			o := chaos.Options{APIServer: []string{server}, Time: time.Minute, Proxies: 6, Seed: 21}
			o.Programs, o.Envoy = labtest.Sidecars(t)
			r, err := chaos.Run(t.Context(), o)
			require.NoError(t, err)
			require.NotEmpty(t, r.Violations)
			require.Contains(t, tt.kinds, r.Violations[0].Kind, "%+v", r.Violations[0])
			t.Logf("%d violations, first %+v", r.Found(), r.Violations[0])
		})
	}
}
