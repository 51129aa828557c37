package security

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/config/envoyext"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

func TestSecrets(t *testing.T) {
	pair, err := Secret(&ir.Secret{Name: "kubernetes://api", Certificate: "chain", PrivateKey: model.NewPrivateKey("key")})
	require.NoError(t, err)
	require.Equal(t, "chain", string(pair.GetTlsCertificate().GetCertificateChain().GetInlineBytes()))
	require.Equal(t, "key", string(pair.GetTlsCertificate().GetPrivateKey().GetInlineBytes()))
	require.Nil(t, pair.GetTlsCertificate().GetOcspStaple())
	stapled, err := Secret(&ir.Secret{Name: "kubernetes://api", Certificate: "chain", PrivateKey: model.NewPrivateKey("key"), OCSPStaple: "staple"})
	require.NoError(t, err)
	require.Equal(t, "staple", string(stapled.GetTlsCertificate().GetOcspStaple().GetInlineBytes()))
	require.NoError(t, envoyext.Validate(stapled))
	cas, err := Secret(&ir.Secret{Name: "kubernetes://api-cacert", CA: "roots", CRL: "revoked"})
	require.NoError(t, err)
	require.Equal(t, "roots", string(cas.GetValidationContext().GetTrustedCa().GetInlineBytes()))
	require.Equal(t, "revoked", string(cas.GetValidationContext().GetCrl().GetInlineBytes()))
	require.NoError(t, envoyext.Validate(pair))
	require.NoError(t, envoyext.Validate(cas))
}
