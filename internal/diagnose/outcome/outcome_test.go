package outcome

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/diagnose/simulate"
)

func TestDryRunPoliciesDecideNothing(t *testing.T) {
	dry := simulate.Decision{Policy: "shop/dry", Refuses: true, DryRun: true}
	real := simulate.Decision{Policy: "shop/real", Rule: new(0), Refuses: true}
	r := &simulate.Result{Listener: "inbound", Decisions: []simulate.Decision{dry}}
	require.Equal(t, "accepts", Answer(r))
	r.Status, r.Decisions = 403, append(r.Decisions, real)
	require.Equal(t, "answers 403, because of AuthorizationPolicy/shop/real, rules[0]", Answer(r))
}
