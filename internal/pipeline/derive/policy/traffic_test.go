package policy

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive/index"
)

func TestServedTLS(t *testing.T) {
	secret := &model.ClientTLS{Mode: model.TLSMutual, CredentialName: "s", SNI: "a"}
	authorities := &model.ClientTLS{Mode: model.TLSSimple, CredentialName: "configmap://shop/ca"}
	for _, c := range []struct {
		name       string
		asked, got *model.ClientTLS
		rule       *model.DestinationRule
		proxy      model.ProxyType
	}{
		{"files", &model.ClientTLS{Mode: model.TLSMutual, PrivateKey: "key"}, &model.ClientTLS{Mode: model.TLSMutual, PrivateKey: "key"}, nil, model.ProxySidecar},
		{"a secret for everybody", secret, &model.ClientTLS{Mode: model.TLSSimple, SNI: "a"}, &model.DestinationRule{}, model.ProxySidecar},
		{"CAs for everybody", authorities, authorities, &model.DestinationRule{}, model.ProxySidecar},
		{"a secret for some", secret, secret, &model.DestinationRule{WorkloadSelector: map[string]string{"app": "web"}}, model.ProxySidecar},
		{"a secret for gateways", secret, secret, &model.DestinationRule{}, model.ProxyRouter},
	} {
		r := &index.Reader{Client: &index.Client{Key: index.GroupKey{Type: c.proxy}}}
		require.Equal(t, c.got, servedTLS(r, c.asked, c.rule), c.name)
	}
}
