package model

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCredentialsOfConfigMaps checks that no reference means another ConfigMap, and none the mesh's configuration.
func TestCredentialsOfConfigMaps(t *testing.T) {
	for _, name := range []string{"roots", "roots-cacert", "istio-cacert", "istio-cacert-cacert"} {
		c, ok := ParseCredential("configmap://trust/" + name)
		require.True(t, ok, name)
		key, own := c.In("shop")
		require.True(t, own, name)
		require.Equal(t, Key{Kind: KindConfigMap, Namespace: "trust", Name: name}, key)
		require.False(t, key.IsMeshConfig(), name)
	}
	_, ok := ParseCredential("configmap://trust/istio")
	require.False(t, ok)
}

// TestCAResource checks the SDS names: a Secret with the suffix and one without share a name.
func TestCAResource(t *testing.T) {
	for ca, want := range map[string]string{
		"clients":                        "kubernetes://clients-cacert",
		"clients-cacert":                 "kubernetes://clients-cacert",
		"configmap://trust/roots":        "configmap://trust/roots-cacert",
		"configmap://trust/roots-cacert": "configmap://trust/roots-cacert-cacert",
	} {
		tls := &ServerTLS{Mode: ServerMutual, CredentialNames: []string{"web"}, CACredentialName: ca}
		require.Equal(t, want, tls.CAResource(), ca)
	}
}
