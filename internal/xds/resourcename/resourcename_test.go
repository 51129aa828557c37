package resourcename

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
)

func TestClusterRoundTrip(t *testing.T) {
	for want, c := range map[string]Cluster{
		"outbound|80||reviews.shop.svc.cluster.local": {Outbound, 80, "", "reviews.shop.svc.cluster.local"},
		"outbound|443|v1|*.example.com":               {Outbound, 443, "v1", "*.example.com"},
		"inbound|8080||":                              {Inbound, 8080, "", ""},
		"outbound|0||":                                {Outbound, 0, "", ""},
	} {
		require.Equal(t, want, c.String())
		back, ok := ParseCluster(want)
		require.True(t, ok, want)
		require.Equal(t, c, back)
	}
}

func TestParseClusterRejectsOtherNames(t *testing.T) {
	for _, name := range []string{"", "BlackHoleCluster", "xds-grpc", "outbound|80|v1", "outbound|http||a", "outbound|80||a|b", "sideways|80||a", "outbound|-1||a"} {
		c, ok := ParseCluster(name)
		require.False(t, ok, name)
		require.Zero(t, c)
	}
}

func TestVirtualHostRoundTrip(t *testing.T) {
	for _, rc := range []string{"80", "80~16~3", "/run/a.sock_0", "https.443.web.edge.shop", "inbound|8080||"} {
		for _, host := range []string{"reviews.shop.svc.cluster.local:80", "allow_any", ""} {
			gotRC, gotHost := CutVirtualHost(VirtualHost(rc, host))
			require.Equal(t, rc, gotRC)
			require.Equal(t, host, gotHost)
			bytesRC, bytesHost := CutVirtualHost([]byte(VirtualHost(rc, host)))
			require.Equal(t, rc, string(bytesRC))
			require.Equal(t, host, string(bytesHost))
		}
	}
	rc, host := CutVirtualHost("no-slash")
	require.Empty(t, rc)
	require.Equal(t, "no-slash", host)
}

func TestHostPortRoundTrip(t *testing.T) {
	for _, h := range []model.Host{"reviews.shop.svc.cluster.local", "*.example.com", "2001:db8::1", "*"} {
		got, port, ok := CutHostPort(HostPort(h, 8080))
		require.True(t, ok)
		require.Equal(t, h, got)
		require.Equal(t, uint32(8080), port)
	}
	for _, name := range []string{"allow_any", "a:", "a:http", "a:99999999999"} {
		_, _, ok := CutHostPort(name)
		require.False(t, ok, name)
	}
}

func TestConfigPathRoundTrip(t *testing.T) {
	key := model.Key{Kind: model.KindDestinationRule, Namespace: "shop", Name: "reviews"}
	path := ConfigPath(key)
	require.Equal(t, "/apis/networking.istio.io/v1/namespaces/shop/destination-rule/reviews", path)
	namespace, kind, name, ok := CutConfigPath(path)
	require.True(t, ok)
	require.Equal(t, key, model.Key{Kind: model.KindOfConfig(kind), Namespace: namespace, Name: name})
	_, _, _, ok = CutConfigPath("short/path")
	require.False(t, ok)
}
