package derive

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
)

func TestServedTLS(t *testing.T) {
	for _, c := range []struct {
		name       string
		asked, got *model.ClientTLS
	}{
		{"nothing", nil, nil},
		{"the mesh's own certificates", &model.ClientTLS{Mode: model.TLSIstioMutual, SNI: "a"}, nil},
		{"files", &model.ClientTLS{Mode: model.TLSMutual, PrivateKey: "key"}, &model.ClientTLS{Mode: model.TLSMutual, PrivateKey: "key"}},
		{"a secret", &model.ClientTLS{Mode: model.TLSMutual, CredentialName: "s", SNI: "a"}, &model.ClientTLS{Mode: model.TLSSimple, SNI: "a"}},
	} {
		require.Equal(t, c.got, servedTLS(c.asked), c.name)
	}
}
