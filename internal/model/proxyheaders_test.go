package model

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestProxyHeadersOf(t *testing.T) {
	usual := CertificateDetails{Subject: true, DNS: true, URI: true}
	for text, want := range map[string]ProxyHeaders{
		`null`:                                 {},
		`{}`:                                   {Said: true, Details: usual},
		`{"server": {"disabled": true}}`:       {Said: true, Details: usual, ServerSaid: true, KeepServer: true},
		`{"server": {"value": "web"}}`:         {Said: true, Details: usual, ServerSaid: true, Server: "web"},
		`{"forwardedClientCert": "UNDEFINED"}`: {Said: true, Details: usual},
		`{"forwardedClientCert": "SANITIZE"}`:  {Said: true, Details: usual, ClientCertificates: "SANITIZE"},
		`{"setCurrentClientCertDetails": {"subject": false, "cert": true, "chain": true}}`: {Said: true, Details: CertificateDetails{Cert: true, Chain: true, DNS: true, URI: true}},
		`{"requestId": {"disabled": true}, "attemptCount": {"disabled": false}}`:           {Said: true, Details: usual, NoRequestIDs: true},
		`{"attemptCount": {"disabled": true}, "envoyDebugHeaders": {"disabled": true}, "xForwardedPort": {"enabled": true}}`: {
			Said: true, Details: usual, NoAttempts: true, NoDebug: true, ForwardPort: true},
		`{"xForwardedHost": {"enabled": true}, "preserveHttp1HeaderCase": true}`:    {Said: true, Details: usual, ForwardHost: true, KeepCase: true},
		`{"xForwardedHost": {"enabled": false}, "preserveHttp1HeaderCase": "true"}`: {Said: true, Details: usual},
		`{"server": 5, "requestId": {"disabled": "yes"}, "forwardedClientCert": 1}`: {Said: true, Details: usual},
	} {
		var said map[string]any
		require.NoError(t, json.Unmarshal([]byte(text), &said))
		require.Equal(t, want, ProxyHeadersOf(said), text)
	}
	require.Equal(t, DefaultCertificateDetails, ProxyHeaders{}.CertificateDetails())
}
