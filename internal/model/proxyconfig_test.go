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
		`{}`:                                   {Set: true, Details: usual},
		`{"server": {"disabled": true}}`:       {Set: true, Details: usual, KeepServer: true},
		`{"server": {"value": "web"}}`:         {Set: true, Details: usual, Server: "web"},
		`{"forwardedClientCert": "UNDEFINED"}`: {Set: true, Details: usual},
		`{"forwardedClientCert": "SANITIZE"}`:  {Set: true, Details: usual, ClientCertificates: "SANITIZE"},
		`{"setCurrentClientCertDetails": {"subject": false, "cert": true, "chain": true}}`: {Set: true, Details: CertificateDetails{Cert: true, Chain: true, DNS: true, URI: true}},
		`{"requestId": {"disabled": true}, "attemptCount": {"disabled": false}}`:           {Set: true, Details: usual, NoRequestIDs: true},
		`{"attemptCount": {"disabled": true}, "envoyDebugHeaders": {"disabled": true}, "xForwardedPort": {"enabled": true}}`: {
			Set: true, Details: usual, NoAttempts: true, NoDebug: true, ForwardPort: true},
		`{"xForwardedHost": {"enabled": true}, "preserveHttp1HeaderCase": true}`:    {Set: true, Details: usual, ForwardHost: true, KeepCase: true},
		`{"xForwardedHost": {"enabled": false}, "preserveHttp1HeaderCase": "true"}`: {Set: true, Details: usual},
		`{"server": 5, "requestId": {"disabled": "yes"}, "forwardedClientCert": 1}`: {Set: true, Details: usual},
	} {
		var set map[string]any
		require.NoError(t, json.Unmarshal([]byte(text), &set))
		require.Equal(t, want, ProxyHeadersOf(set), text)
	}
	require.Equal(t, DefaultCertificateDetails, ProxyHeaders{}.CertificateDetails())
}

func TestProxyTracing(t *testing.T) {
	mesh := DefaultMeshTelemetry()
	mesh.Sampling, mesh.MaxTagLength, mesh.NoIstioTags = 7, 99, true
	mesh.Tags = map[string]TraceTag{"of": {Literal: "mesh"}}
	none := map[string]TraceTag{}
	for text, want := range map[string]MeshTelemetry{
		`null`: mesh,
		`{}`:   {Tags: none},
		`{"sampling": 55.5, "maxPathTagLength": 64, "enableIstioTags": false}`: {Sampling: 55.5, MaxTagLength: 64, NoIstioTags: true, Tags: none},
		`{"zipkin": {"address": "a:1"}, "enableIstioTags": true}`:              {Tags: none},
		`{"sampling": 101, "maxPathTagLength": -1, "customTags": 5}`:           {Tags: none},
		`{"customTags": {"l": {"literal": {"value": "x"}}, "h": {"header": {"name": "y", "defaultValue": "d"}},
			"e": {"environment": {"name": "Z"}}, "nothing": {}, "wrong": 1, "": {"literal": {"value": "x"}}}}`: {Tags: map[string]TraceTag{
			"l": {Literal: "x"}, "h": {Header: "y", Default: "d"}, "e": {Environment: "Z"}}},
	} {
		var set map[string]any
		require.NoError(t, json.Unmarshal([]byte(text), &set))
		got := ProxyTracingOf(set).Over(&mesh)
		require.Equal(t, MeshTelemetry{Sampling: want.Sampling, MaxTagLength: want.MaxTagLength, NoIstioTags: want.NoIstioTags, Tags: want.Tags},
			MeshTelemetry{Sampling: got.Sampling, MaxTagLength: got.MaxTagLength, NoIstioTags: got.NoIstioTags, Tags: got.Tags}, text)
		require.Equal(t, mesh.Providers, got.Providers)
	}
	require.Equal(t, ProxyTracing(`{"maxPathTagLength":2,"sampling":1}`), ProxyTracingOf(map[string]any{"sampling": 1, "zipkin": 0, "maxPathTagLength": 2}))
	require.Empty(t, ProxyTracingOf(map[string]any{"customTags": string(make([]byte, maxProxyTracing))}))
}
