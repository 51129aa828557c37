package cli

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/diagnose/simulate"
)

// TestDecisionText: what each kind of decision is called for people.
func TestDecisionText(t *testing.T) {
	for want, d := range map[string]simulate.Decision{
		"ALLOW shop/web, rule 0, matches it":                                              {Action: "ALLOW", Policy: "shop/web"},
		"ALLOW: no policy matches (shop/a, shop/b), so it is refused":                     {Action: "ALLOW", Among: []string{"shop/a", "shop/b"}, Refuses: true},
		"DENY shop/web, rule 2, refuses it":                                               {Action: "DENY", Policy: "shop/web", Rule: 2, Refuses: true},
		"DENY shop/web, rule 1, refuses it (dry run: it has no effect)":                   {Action: "DENY", Policy: "shop/web", Rule: 1, Refuses: true, DryRun: true},
		"ALLOW: no policy matches (shop/a), so it is refused (dry run: it has no effect)": {Action: "ALLOW", Among: []string{"shop/a"}, DryRun: true},
		"AUDIT shop/web, rule 0, marks it":                                                {Action: "AUDIT", Policy: "shop/web"},
		"CUSTOM shop/ask, rule 0, has outbound|80||opa asked, which is taken to consent":  {Action: "CUSTOM", Policy: "shop/ask", Asks: "outbound|80||opa"},
		"CUSTOM shop/ask, rule 0, refuses it: there is nobody to ask":                     {Action: "CUSTOM", Policy: "shop/ask", Refuses: true, Cause: "there is nobody to ask"},
		"JWT refuses it: it has expired":                                                  {Action: "JWT", Refuses: true, Cause: "it has expired"},
	} {
		require.Equal(t, want, decisionText(&d))
	}
}
