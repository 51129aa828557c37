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

// TestChaosFindsDefects plants a defect in the control planes: requests must show it.
func TestChaosFindsDefects(t *testing.T) {
	labtest.Temporary(t)
	t.Setenv(defect.Variable, string(defect.PolicyGap))
	server, err := kubetest.Binary()
	require.NoError(t, err)
	o := chaos.Options{APIServer: []string{server}, Time: time.Minute, Proxies: 6, Seed: 21}
	o.Programs, o.Envoy = labtest.Sidecars(t)
	r, err := chaos.Run(t.Context(), o)
	require.NoError(t, err)
	require.NotEmpty(t, r.Violations)
	require.Equal(t, "request", r.Violations[0].Kind, "%+v", r.Violations[0])
	t.Logf("%d violations, first %+v", r.Found(), r.Violations[0])
}
