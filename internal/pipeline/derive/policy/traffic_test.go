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

// TestPortsInheritOnlyTunnels checks what port-level settings leave of the parts that they cannot have, as in Istio.
func TestPortsInheritOnlyTunnels(t *testing.T) {
	pool, own := &model.ConnectionPool{MaxConnections: 5}, &model.ConnectionPool{MaxConnections: 6}
	budget, tunnel, other := &model.RetryBudget{Percent: 10}, &model.Tunnel{TargetPort: 1}, &model.Tunnel{TargetPort: 2}
	ports := map[uint32]model.TrafficPolicy{81: {ConnectionPool: pool}}
	rule := &model.DestinationRule{
		Policy: model.TrafficPolicy{ProxyProtocol: 2, RetryBudget: budget, Tunnel: tunnel},
		Ports:  ports,
		Subsets: []model.Subset{
			{Name: "plain"},
			{Name: "own", Policy: model.TrafficPolicy{ProxyProtocol: 1, RetryBudget: &model.RetryBudget{}, Tunnel: other}, Ports: map[uint32]model.TrafficPolicy{80: {ConnectionPool: own}, 81: {ConnectionPool: own}}},
		},
	}
	for _, c := range []struct {
		subset string
		port   uint32
		want   model.TrafficPolicy
	}{
		{"", 80, rule.Policy},
		{"", 81, model.TrafficPolicy{ConnectionPool: pool, Tunnel: tunnel}},
		{"plain", 81, model.TrafficPolicy{ConnectionPool: pool, Tunnel: tunnel}},
		{"own", 80, model.TrafficPolicy{ConnectionPool: own, ProxyProtocol: 2, RetryBudget: budget, Tunnel: other}},
		{"own", 81, model.TrafficPolicy{ConnectionPool: own, Tunnel: other}},
		{"own", 82, model.TrafficPolicy{ProxyProtocol: 1, RetryBudget: rule.Subsets[1].Policy.RetryBudget, Tunnel: other}},
	} {
		got := ForSubset(rule, c.subset, c.port)
		require.Equal(t, c.want, got, "subset %q, port %d", c.subset, c.port)
		require.Same(t, c.want.Tunnel, got.Tunnel, "subset %q, port %d", c.subset, c.port)
	}
	require.Equal(t, ForSubset(rule, "", 81), ForPort(rule, 81))
}
