package policy

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
)

func TestServedTLS(t *testing.T) {
	secret := &model.ClientTLS{Mode: model.TLSMutual, CredentialName: "s", SNI: "a"}
	authorities := &model.ClientTLS{Mode: model.TLSSimple, CredentialName: "configmap://shop/ca"}
	for _, c := range []struct {
		name       string
		asked, got *model.ClientTLS
		rule       *model.DestinationRule
	}{
		{"files", &model.ClientTLS{Mode: model.TLSMutual, PrivateKey: "key"}, &model.ClientTLS{Mode: model.TLSMutual, PrivateKey: "key"}, nil},
		{"a secret for everybody", secret, &model.ClientTLS{Mode: model.TLSSimple, SNI: "a"}, &model.DestinationRule{}},
		{"CAs for everybody", authorities, authorities, &model.DestinationRule{}},
		{"a secret for some", secret, secret, &model.DestinationRule{WorkloadSelector: map[string]string{"app": "web"}}},
	} {
		require.Equal(t, c.got, servedTLS(c.asked, c.rule), c.name)
	}
}
