package preview_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/diagnose/preview"
	"github.com/moonsail/moonsail/internal/model"
)

// TestAccessLog checks which call an entry of an access log is.
func TestAccessLog(t *testing.T) {
	side := &preview.Side{Proxies: []*model.Proxy{
		{Name: "web-1", Namespace: "shop", IPs: []string{"10.0.0.5"}}, {Name: "gw", Namespace: "edge", IPs: []string{"10.0.0.6"}},
		{Name: "twin", Namespace: "a"}, {Name: "twin", Namespace: "b"},
	}}
	text := func(request, authority, cluster, local, remote, sni string) string {
		return `[2026-11-27T01:00:01.000Z] "` + request + `" 200 - via_upstream - "-" 0 5 1 1 "-" "curl/8" "id" "` + authority + `" "10.0.0.9:80" ` + cluster + ` 10.0.0.5:1 ` +
			local + " " + remote + " " + sni + " default"
	}
	const known = "outbound|80|v1|reviews.shop.svc.cluster.local"
	for name, tc := range map[string]struct {
		line, writer string
		want         *preview.Call // nil: none
	}{
		"a request":          {text("GET /a?b=c HTTP/1.1", "reviews:80", known, "10.1.0.3:80", "10.0.0.5:1", "-"), "", &preview.Call{From: "web-1.shop", URL: "http://reviews:80/a?b=c"}},
		"another port":       {text("PUT /a HTTP/2", "reviews", known, "10.1.0.3:9080", "10.0.0.5:1", "-"), "", &preview.Call{From: "web-1.shop", URL: "http2://reviews:9080/a", Method: "PUT"}},
		"an unknown service": {text("GET / HTTP/1.1", "example.com", "PassthroughCluster", "192.0.2.1:80", "10.0.0.5:1", "-"), "", &preview.Call{From: "web-1.shop", URL: "http://example.com:80/", Address: "192.0.2.1"}},
		"TLS":                {text("- - -", "-", known, "10.1.0.3:443", "10.0.0.5:1", "db.example.com"), "", &preview.Call{From: "web-1.shop", URL: "tls://db.example.com:443"}},
		"TCP":                {text("- - -", "-", known, "10.1.0.3:3306", "10.0.0.5:1", "-"), "", &preview.Call{From: "web-1.shop", URL: "tcp://10.1.0.3:3306"}},
		"at the server":      {text("GET /a HTTP/2", "reviews:9080", "inbound|8080||", "10.0.0.9:8080", "10.0.0.5:1", "outbound_.9080_._.reviews"), "reviews.shop", &preview.Call{From: "web-1.shop", URL: "http://reviews:9080/a"}},
		"TCP at the server":  {text("- - -", "-", "inbound|3306||", "10.0.0.9:3306", "10.0.0.5:1", "-"), "", nil},
		"a gateway":          {text("GET /a HTTP/1.1", "shop.example.com", known, "10.0.0.6:8080", "198.51.100.1:1", "-"), "gw.edge", &preview.Call{From: "gw.edge", URL: "http://shop.example.com:8080/a"}},
		"a Pod's prefix":     {"[pod/gw/istio-proxy] " + text("GET /a HTTP/1.1", "x", known, "10.0.0.6:8080", "198.51.100.1:1", "-"), "", &preview.Call{From: "gw.edge", URL: "http://x:8080/a"}},
		"a name of two":      {text("GET /a HTTP/1.1", "x", known, "10.0.0.6:8080", "198.51.100.1:1", "-"), "twin", nil},
		"an unknown caller":  {text("GET /a HTTP/1.1", "x", known, "10.0.0.6:8080", "198.51.100.1:1", "-"), "", nil},
		"JSON": {`{"method":"GET","path":"/a","protocol":"HTTP/1.1","authority":"reviews","upstream_cluster":"` + known + `","downstream_local_address":"10.1.0.3:80",` +
			`"downstream_remote_address":"10.0.0.5:1","requested_server_name":null,"response_code":200,"user_agent":"grpc-go/1"}`, "", &preview.Call{From: "web-1.shop", URL: "grpc://reviews:80/a"}},
		"a method of lines": {`{"method":"GET\n---\n\u001b[2J","path":"/a","protocol":"HTTP/1.1","authority":"reviews","upstream_cluster":"` + known + `","downstream_local_address":"10.1.0.3:80",` +
			`"downstream_remote_address":"10.0.0.5:1"}`, "", nil},
		"an address of lines": {`{"method":"GET","path":"/a","protocol":"HTTP/1.1","authority":"x","upstream_cluster":"PassthroughCluster","downstream_local_address":"a\nb:80",` +
			`"downstream_remote_address":"10.0.0.5:1"}`, "", nil},
		"a bad authority": {text("GET /a HTTP/1.1", "a b", known, "10.1.0.3:80", "10.0.0.5:1", "-"), "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			var log preview.AccessLog
			require.NoError(t, log.Read(strings.NewReader(tc.line+"\nnot an entry\n"+tc.line+"\n"), tc.writer))
			require.Equal(t, 1, log.Others)
			calls, _ := log.Calls(side, side)
			if tc.want == nil {
				require.Empty(t, calls)
			} else {
				require.Equal(t, []preview.Call{*tc.want}, calls)
			}
		})
	}
}
