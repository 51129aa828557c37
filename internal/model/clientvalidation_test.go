package model

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestClientValidation checks how the mode of a listener and the Gateway's rule for clients go together: a listener is never
// laxer than the Gateway, nor than its own mode.
func TestClientValidation(t *testing.T) {
	ca := Key{Kind: KindConfigMap, Namespace: "edge", Name: "clients"}
	for name, tc := range map[string]struct {
		mode     ServerTLSMode
		insecure bool
		want     ServerTLSMode
		accepts  bool // certificates that no CA signed
	}{
		"valid only, SIMPLE":          {ServerSimple, false, ServerMutual, false},
		"valid only, MUTUAL":          {ServerMutual, false, ServerMutual, false},
		"valid only, OPTIONAL_MUTUAL": {ServerOptionalMutual, false, ServerMutual, false},
		"fallback, SIMPLE":            {ServerSimple, true, ServerOptionalMutual, true},
		"fallback, MUTUAL":            {ServerMutual, true, ServerMutual, false},
		"fallback, OPTIONAL_MUTUAL":   {ServerOptionalMutual, true, ServerOptionalMutual, false},
	} {
		t.Run(name, func(t *testing.T) {
			v := ClientValidation{CAs: []Key{ca}, Insecure: tc.insecure, Required: true}
			got := v.Verifying(&ServerTLS{Mode: tc.mode, CredentialNames: []string{"web"}}, func(Key) bool { return true })
			require.Equal(t, &ServerTLS{Mode: tc.want, AcceptUntrusted: tc.accepts, CredentialNames: []string{"web"}, CACredentialName: "configmap://edge/clients"}, got)
		})
	}
}
