package inspect

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/diagnose/explain"
	"github.com/moonsail/moonsail/internal/diagnose/simulate"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/terminal"
)

func TestPrintWhy(t *testing.T) {
	vs := model.Key{Kind: model.KindVirtualService, Namespace: "shop", Name: "reviews"}
	dr := model.Key{Kind: model.KindDestinationRule, Namespace: "shop", Name: "reviews"}
	refused := problem.Problem{Severity: problem.SeverityError, File: "dr.yaml", Line: 3, Object: dr, Field: "spec.host", Message: "is missing"}
	w := &explain.Why{
		From: "web-1.shop", Method: "GET", URL: "http://reviews:9080/x", Host: "reviews.shop.svc.cluster.local", Address: "10.0.0.3:9080",
		Notes: []string{"one thing"},
		Outbound: &explain.Passage{
			Proxy: "web-1.shop",
			Result: &simulate.Result{
				Listener: "0.0.0.0_9080", RouteConfig: "9080", VirtualHost: "9080/reviews:9080", Route: "jason",
				RouteOrigin: "/apis/networking.istio.io/v1/namespaces/shop/virtual-service/reviews", Timeout: "10s",
				Retry: &simulate.Retry{Attempts: 2, On: "5xx", PerTry: "2s"}, Fault: &simulate.Fault{Delay: "1s", DelayPercent: 12.5},
				Mirrors: []simulate.Mirror{{Cluster: "m", Percent: 5}},
				Upstreams: []simulate.Upstream{{
					Cluster: "outbound|9080|v2|reviews", Percent: 100, Discovery: "EDS", LB: "ROUND_ROBIN", Protocol: "http1",
					Origin: "/apis/networking.istio.io/v1/namespaces/shop/destination-rule/reviews",
					Limits: &simulate.Limits{Connections: 7}, Outlier: &simulate.Outlier{},
					Endpoints: []simulate.Endpoint{{Address: "10.1.0.1:80", Percent: 100, Locality: "r/z"}, {Address: "10.1.0.2:80", Health: "draining"}},
				}},
			},
			Objects: []explain.Source{{Object: vs, Origin: "a.yaml:3", Decides: "route jason"}, {Object: dr, Decides: "policy", Error: &refused}},
		},
		Inbound: []*explain.Passage{{Proxy: "reviews-1.shop", Result: &simulate.Result{Listener: "virtualInbound", Closed: "no filter chain matches"}},
			{Proxy: "reviews-2.shop", Result: &simulate.Result{Listener: "virtualInbound", Status: 403}}},
	}
	var b strings.Builder
	require.NoError(t, printWhy(newWhyCommand(), &b, w))
	way := `web-1.shop calls GET http://reviews:9080/x
  reviews.shop.svc.cluster.local is 10.0.0.3:9080
  note: one thing

leaves web-1.shop
  listener      0.0.0.0_9080
  routes        9080
  virtual host  9080/reviews:9080
  route         jason  VirtualService/shop/reviews
  policy        timeout 10s; retries 2 on 5xx, each try 2s; delay 1s to 12.5 %; mirror 5 % to m
  cluster       outbound|9080|v2|reviews  100 %  DestinationRule/shop/reviews
    policy      EDS; ROUND_ROBIN; http1; at most 7 connections (of all workers together; beyond that, each may have one to each endpoint); outlier detection
    endpoint    10.1.0.1:80  100 %  r/z
                1 more get no requests: unhealthy, draining or of a lower priority
  decided by
    VirtualService/shop/reviews: route jason  a.yaml:3
    DestinationRule/shop/reviews: policy
      its newest version is refused, at dr.yaml:3: spec.host: is missing

arrives at reviews-1.shop
  listener      virtualInbound
  closed: no filter chain matches

arrives at reviews-2.shop
  listener      virtualInbound
  the proxy answers: 403
`
	require.Equal(t, way, b.String())

	w.Verdict = &explain.CallVerdict{Text: "403 denied by AuthorizationPolicy shop/none at reviews-2.shop", Reasons: []string{"a reason"}}
	b.Reset()
	require.NoError(t, printWhy(newWhyCommand(), &b, w))
	require.Equal(t, "=> 403 denied by AuthorizationPolicy shop/none at reviews-2.shop\n   a reason\n\n"+way, b.String())

	w.Verdict = &explain.CallVerdict{Text: "fails: DNS has no address", Ends: []explain.End{{Outcome: explain.Unresolved}}}
	w.Unknown, w.Notes = true, nil
	b.Reset()
	require.NoError(t, printWhy(newWhyCommand(), &b, w))
	require.Equal(t, `=> fails: DNS has no address

web-1.shop calls GET http://reviews:9080/x
  no service of the mesh is reviews.shop.svc.cluster.local: 10.0.0.3:9080 stands for an address of it
`, b.String(), "a call that is not made has no way")
}

// TestRefusedQuestion checks that a question which the control plane cannot parse is a usage error.
func TestRefusedQuestion(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write([]byte(`{"error": "the scheme is one of http, tcp"}`))
	}))
	defer server.Close()
	status, _, errOut := moonsail(t, "why", "a.shop", "foo://b", "--address", server.URL)
	require.Equal(t, terminal.ExitUsage, status)
	require.Regexp(t, "^error: the scheme is one of http, tcp\n  where: control plane at http://.*\n  next:  see 'moonsail why --help'\n$", errOut)
}

// TestDecisionText checks the text of each kind of decision.
func TestDecisionText(t *testing.T) {
	for want, d := range map[string]simulate.Decision{
		"ALLOW shop/web, rules[0], matches it":                                    {Action: "ALLOW", Policy: "shop/web", Rule: new(0)},
		"ALLOW refuses it: no rule of shop/a, shop/b matches":                     {Action: "ALLOW", Among: []string{"shop/a", "shop/b"}, Refuses: true},
		"DENY shop/web, rules[2], refuses it":                                     {Action: "DENY", Policy: "shop/web", Rule: new(2), Refuses: true},
		"DENY shop/web, rules[1], refuses it (dry run: it has no effect)":         {Action: "DENY", Policy: "shop/web", Rule: new(1), Refuses: true, DryRun: true},
		"ALLOW refuses it: no rule of shop/a matches (dry run: it has no effect)": {Action: "ALLOW", Among: []string{"shop/a"}, DryRun: true},
		"AUDIT shop/web, rules[0], marks it":                                      {Action: "AUDIT", Policy: "shop/web", Rule: new(0)},
		"CUSTOM shop/ask, rules[0], asks outbound|80||opa, assumed to consent":    {Action: "CUSTOM", Policy: "shop/ask", Rule: new(0), Asks: "outbound|80||opa"},
		"CUSTOM shop/ask, rules[0], refuses it: there is no server to ask":        {Action: "CUSTOM", Policy: "shop/ask", Rule: new(0), Refuses: true, Cause: "there is no server to ask"},
		"JWT refuses it: it has expired":                                          {Action: "JWT", Refuses: true, Cause: "it has expired"},
	} {
		require.Equal(t, want, decisionText(&d))
	}
}

func TestCompletionOfHosts(t *testing.T) {
	address := serve(t, map[string]string{"/debug/store/Service": `{"objects": [{"kind": "Service", "namespace": "shop", "name": "reviews"}]}`})
	for typed, want := range map[string][]string{
		"":         {"reviews.shop"},
		"re":       {"reviews.shop"},
		"ht":       {"reviews.shop", "http://reviews.shop"},
		"grpc://r": {"grpc://reviews.shop"},
	} {
		t.Run(typed, func(t *testing.T) {
			_, out, _ := moonsail(t, "__complete", "why", "--address", address, "web-1.shop", typed)
			require.Equal(t, append(want, ":6"), strings.Split(out, "\n")[:len(want)+1])
		})
	}
}
