package inspect

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/moonsail/moonsail/internal/controlplane/dependencies"
	"github.com/moonsail/moonsail/internal/diagnose/explain"
	"github.com/moonsail/moonsail/internal/model"
)

// calls is a report with two workloads of two namespaces.
func calls() *dependencies.Report {
	rate := 2.5
	at := func(first, last time.Duration) (time.Time, time.Time) { return noon.Add(-first), noon.Add(-last) }
	call := func(host model.Host, first, last time.Duration, s dependencies.Service, ports ...uint32) dependencies.CallReport {
		c := dependencies.CallReport{Host: host, Ports: ports, Service: s}
		c.First, c.Last = at(first, last)
		return c
	}
	reviews := dependencies.Service{Kind: model.KindService, Namespace: "shop", Name: "reviews", Pods: map[string]string{"app": "reviews"}, Ports: []dependencies.Port{
		{Number: 80, Protocol: model.ProtocolHTTP, Target: "8080"}, {Number: 90, Protocol: model.ProtocolHTTP, Target: "metrics"},
	}}
	bank := dependencies.Service{Kind: model.KindServiceEntry, Namespace: "billing", Name: "bank", Ports: []dependencies.Port{{Number: 443, Protocol: model.ProtocolTLS, Target: "443"}}}
	fixed := bank
	fixed.Addresses = []string{"192.0.2.1", "2001:db8::1"}
	web := dependencies.WorkloadReport{
		Workload: dependencies.Workload{Namespace: "shop", ServiceAccount: "web", Name: "web"}, Proxies: 2, Selector: map[string]string{"app": "web"},
		Calls: []dependencies.CallReport{
			call("bank.example.com", 50*time.Hour, time.Minute, bank, 443),
			call("old.shop.svc.cluster.local", 30*24*time.Hour, 20*24*time.Hour, dependencies.Service{}, 80),
			call("reviews.shop.svc.cluster.local", time.Hour, time.Second, reviews, 80),
		},
	}
	web.Calls[2].Measured = &dependencies.Measured{
		Seconds: 60, Requests: 150, Errors: 78, ErrorShare: 0.52, Failures: map[string]float64{"502": 77, "0 DC": 1}, Reached: 149, Mutual: 149, TLS: dependencies.MutualAll,
	}
	web.Calls[2].Rate, web.Calls[2].Subsets = &rate, []string{"v1", "v2"}
	api := dependencies.WorkloadReport{
		Workload: dependencies.Workload{Namespace: "billing", ServiceAccount: "default", Name: "api"}, Selector: map[string]string{"tier": "api"}, Shared: true,
		Calls: []dependencies.CallReport{call("fixed.example.com", time.Hour, time.Hour, fixed, 443), call("reviews.shop.svc.cluster.local", time.Hour, time.Hour, reviews)},
	}
	gone := dependencies.WorkloadReport{
		Workload: dependencies.Workload{Namespace: "billing", ServiceAccount: "default", Name: "cron"},
		Calls:    []dependencies.CallReport{call("reviews.shop.svc.cluster.local", time.Hour, time.Hour, reviews, 80)},
	}
	return &dependencies.Report{Now: noon, RootNamespace: "istio-system", Workloads: []dependencies.WorkloadReport{api, gone, web}}
}

// dependenciesAt serves a report, if the question has no workload and service, or asks for those that it has.
func dependenciesAt(t *testing.T, others ...explain.PeerQuery) (address string, asked *[]url.Values) {
	t.Helper()
	asked = &[]url.Values{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/debug/store/Service":
			fmt.Fprint(w, `{"objects": [{"kind": "Service", "namespace": "shop", "name": "catalog"}, {"kind": "Service", "namespace": "shop", "name": "reviews"}]}`)
			return
		case "/debug/dependencies":
		default:
			w.WriteHeader(http.StatusNotFound)
			return
		}
		*asked = append(*asked, r.URL.Query())
		report := calls()
		report.Others = others
		if r.URL.Query().Get("workload")+r.URL.Query().Get("callers-of") != "" {
			report.Workloads = nil
		}
		_ = json.NewEncoder(w).Encode(report)
	}))
	t.Cleanup(s.Close)
	return s.URL, asked
}

func TestDependencies(t *testing.T) {
	address, asked := dependenciesAt(t)
	status, out, errOut := moonsail(t, "dependencies", "-n", "shop", "--local", "--address", address)
	require.Zero(t, status, errOut)
	require.Equal(t, `WORKLOAD  NAMESPACE  CALLS                              PORTS  RATE   ERRORS  MTLS  LAST CALL  SINCE
api       billing    fixed.example.com                  443    -      -       -     1h0m       1h0m
api       billing    reviews.shop                       *      -      -       -     1h0m       1h0m
cron      billing    reviews.shop                       80     -      -       -     1h0m       1h0m
web       shop       bank.example.com                   443    -      -       -     1m         2d2h
web       shop       old.shop.svc.cluster.local (gone)  80     -      -       -     20d0h      30d0h
web       shop       reviews.shop                       80     2.5/s  52%     yes   1s         1h0m
`, out)
	require.Equal(t, []url.Values{{"namespace": {"shop"}, "local": {""}}}, *asked)

	_, out, _ = moonsail(t, "deps", "-o", "wide", "--address", address)
	require.Regexp(t, `(?m)^web +shop +reviews.shop +80 +2.5/s +52% +yes +1s +1h0m +502 \(77\), 0 DC \(1\) +web +2 +v1,v2 +reviews.shop.svc.cluster.local$`, out)
	_, out, _ = moonsail(t, "deps", "-o", "json", "--address", address)
	want, err := json.Marshal(calls())
	require.NoError(t, err)
	require.JSONEq(t, string(want), out)
	_, out, _ = moonsail(t, "deps", "-o", "name", "--address", address)
	require.Equal(t, "api.billing\ncron.billing\nweb.shop\n", out)
	_, out, _ = moonsail(t, "deps", "-o", "jsonpath={.workloads[*].calls[0].host}", "--address", address)
	require.Equal(t, "fixed.example.com reviews.shop.svc.cluster.local bank.example.com\n", out)
	_, out, _ = moonsail(t, "deps", "-o", "graph", "--address", address)
	require.Contains(t, out, `"shop/web (web)" -> "reviews.shop.svc.cluster.local" [label="2.5/s, 52% errors", color=red]`)
	require.Contains(t, out, `"reviews.shop.svc.cluster.local" [label="reviews.shop"]`)
}

func TestFailingDependencies(t *testing.T) {
	address, _ := dependenciesAt(t)
	status, out, errOut := moonsail(t, "dependencies", "--failing", "--address", address)
	require.Zero(t, status, errOut)
	require.Equal(t, `WORKLOAD  NAMESPACE  CALLS         PORTS  RATE   ERRORS  MTLS  LAST CALL  SINCE  FAILURES
web       shop       reviews.shop  80     2.5/s  52%     yes   1s         1h0m   502 (77), 0 DC (1)
`, out)
	_, out, _ = moonsail(t, "dependencies", "--failing", "-o", "jsonpath={.workloads[*].calls[*].measured.errorShare}", "--address", address)
	require.Equal(t, "0.52\n", out)
	for name, want := range map[string]struct {
		change func(*dependencies.CallReport)
		text   string
	}{
		"none fails":   {func(c *dependencies.CallReport) { c.Measured = nil }, "no call failed in the last minutes\n"},
		"not measured": {func(c *dependencies.CallReport) { c.Measured, c.Rate = nil, nil }, "no calls were measured yet: the proxies are read twice, a minute apart\n"},
	} {
		t.Run(name, func(t *testing.T) {
			report := calls()
			want.change(&report.Workloads[2].Calls[2])
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(report) }))
			defer s.Close()
			_, out, _ := moonsail(t, "dependencies", "--failing", "--address", s.URL)
			require.Equal(t, want.text, out)
		})
	}
}

func TestDependenciesErrors(t *testing.T) {
	address, asked := dependenciesAt(t, explain.PeerQuery{ControlPlane: "10.0.0.9:15012", Silent: "timeout"})
	for name, c := range map[string]struct {
		args   []string
		status int
		text   string
	}{
		"workload":              {[]string{"pod/wed.shop"}, 1, `workload "wed.shop": no calls are known; did you mean "web.shop"?`},
		"service":               {[]string{"--callers-of", "review.shop"}, 1, `service "review.shop": no callers are known; did you mean "reviews.shop"?`},
		"service by its name":   {[]string{"--callers-of", "revews"}, 1, `service "revews": no callers are known; did you mean "reviews"?`},
		"service not called":    {[]string{"--callers-of", "catalgo"}, 1, `service "catalgo": no callers are known; did you mean "catalog"?`},
		"service in namespace":  {[]string{"--callers-of", "catalgo.shop"}, 1, `service "catalgo.shop": no callers are known; did you mean "catalog.shop"?`},
		"known service":         {[]string{"--callers-of", "catalog"}, 1, `service "catalog": no callers are known` + "\n"},
		"by namespace":          {[]string{"--by-namespace"}, 2, "--by-namespace: is for -o sidecar"},
		"namespace of workload": {[]string{"web", "--by-namespace", "-o", "sidecar"}, 2, "leave out WORKLOAD"},
		"Sidecar of callers":    {[]string{"--callers-of", "a", "-o", "sidecar"}, 2, "would allow only calls to this service"},
		"Sidecar of failing":    {[]string{"--failing", "-o", "sidecar"}, 2, "--failing: the object would allow only calls that fail"},
		"format":                {[]string{"-o", "dot"}, 2, `unknown format "dot": use table, json, yaml, wide, name, jsonpath=TEMPLATE, graph, sidecar or networkpolicy`},
		"silent for names":      {[]string{"-o", "name"}, 0, "control plane 10.0.0.9:15012 does not answer: timeout"},
		"silent control plane":  {[]string{"-o", "graph"}, 0, "control plane 10.0.0.9:15012 does not answer: timeout"},
		"incomplete Sidecars":   {[]string{"-o", "sidecar"}, 1, "where: control plane 10.0.0.9:15012: no answer: timeout"},
		"incomplete policies":   {[]string{"-o", "networkpolicy"}, 1, "no objects are written"},
	} {
		t.Run(name, func(t *testing.T) {
			status, _, errOut := moonsail(t, append([]string{"dependencies", "--address", address}, c.args...)...)
			require.Equal(t, c.status, status)
			require.Contains(t, errOut, c.text)
		})
	}
	require.Contains(t, *asked, url.Values{"workload": {"wed.shop"}})
	_, out, _ := moonsail(t, "__complete", "dependencies", "--address", address, "")
	require.Contains(t, out, "web.shop")
	_, out, _ = moonsail(t, "__complete", "dependencies", "--address", address, "--callers-of", "")
	require.Contains(t, out, "reviews.shop\n")
	require.Contains(t, out, "bank.example.com\n")
}

func TestSidecarsOfDependencies(t *testing.T) {
	address, _ := dependenciesAt(t)
	_, out, _ := moonsail(t, "dependencies", "-o", "sidecar", "--address", address)
	require.Equal(t, `# api.billing: these labels also select Pods of other workloads: label its Pods
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata:
  name: api.default
  namespace: billing
spec:
  egress:
  - hosts:
    - ./fixed.example.com
    - istio-system/*
    - shop/reviews.shop.svc.cluster.local
  workloadSelector:
    labels:
      tier: api
---
# cron.billing: no Sidecar: it has no Pods now, or they have no labels in common
---
# old.shop.svc.cluster.local: left out: the service does not exist any longer
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata:
  name: web
  namespace: shop
spec:
  egress:
  - hosts:
    - ./reviews.shop.svc.cluster.local
    - billing/bank.example.com
    - istio-system/*
  workloadSelector:
    labels:
      app: web
`, out)
	_, out, _ = moonsail(t, "dependencies", "-o", "sidecar", "--by-namespace", "--address", address)
	require.Contains(t, out, `metadata:
  name: default
  namespace: billing
spec:
  egress:
  - hosts:
    - ./fixed.example.com
    - istio-system/*
    - shop/reviews.shop.svc.cluster.local
---
`)
}

func TestNetworkPoliciesOfDependencies(t *testing.T) {
	address, _ := dependenciesAt(t)
	_, out, _ := moonsail(t, "dependencies", "-o", "networkpolicy", "--address", address)
	for _, part := range []string{
		"# reviews.shop.svc.cluster.local: all ports of the service: which of them are called is unknown\n",
		"# cron.billing: no NetworkPolicy: ",
		"# a certificate authority (global.caAddress), collectors",
		"# bank.example.com: left out: no Pods and no fixed addresses serve it: add a rule with its addresses\n# old.shop.svc.cluster.local: left out: the service does not exist any longer\n",
		`metadata:
  name: web-calls
  namespace: shop
spec:
  egress:
  - ports:
    - port: 53
      protocol: UDP
    - port: 53
      protocol: TCP
  - ports:
    - port: 15012
      protocol: TCP
    to:
    - namespaceSelector:
        matchLabels:
          kubernetes.io/metadata.name: istio-system
      podSelector:
        matchLabels:
          app.kubernetes.io/name: moonsail
  - ports:
    - port: 8080
      protocol: TCP
    to:
    - namespaceSelector:
        matchLabels:
          kubernetes.io/metadata.name: shop
      podSelector:
        matchLabels:
          app: reviews
  podSelector:
    matchLabels:
      app: web
  policyTypes:
  - Egress
`,
		`    to:
    - ipBlock:
        cidr: 192.0.2.1/32
    - ipBlock:
        cidr: 2001:db8::1/128
`,
		"    - port: metrics\n",
	} {
		require.Contains(t, out, part)
	}
}

// TestObjectsOfHostileNames has a report whose names end lines and begin documents.
func TestObjectsOfHostileNames(t *testing.T) {
	evil := "a\n---\nkind: ClusterRoleBinding\r\u2028kind: Secret\x1b[2J"
	gone := dependencies.WorkloadReport{Workload: dependencies.Workload{Namespace: evil, ServiceAccount: evil, Name: evil}}
	web := calls().Workloads[2]
	web.Calls = append(web.Calls, dependencies.CallReport{Host: model.Host(evil)}, dependencies.CallReport{Host: "names.example.com", Service: dependencies.Service{
		Kind: model.KindServiceEntry, Namespace: "shop", Names: []string{evil}, Addresses: []string{"192.0.2.1"}, Ports: []dependencies.Port{{Number: 80, Target: "80"}},
	}})
	r := &dependencies.Report{Workloads: []dependencies.WorkloadReport{gone, web}}
	for name, list := range map[string][]object{"Sidecars": sidecarsOf(r, false), "NetworkPolicies": networkPoliciesOf(r)} {
		t.Run(name, func(t *testing.T) {
			var b strings.Builder
			require.NoError(t, printManifests(&b, list))
			require.Contains(t, b.String(), "# kind: ClusterRoleBinding\\r\\u2028kind: Secret\\x1b[2J")
			var kinds []string
			documents := yaml.NewDecoder(strings.NewReader(b.String()))
			for {
				var one struct{ Kind string }
				err := documents.Decode(&one)
				if errors.Is(err, io.EOF) {
					break
				}
				require.NoError(t, err)
				if one.Kind != "" {
					kinds = append(kinds, one.Kind)
				}
			}
			require.Len(t, kinds, 1)
			require.Contains(t, []string{"Sidecar", "NetworkPolicy"}, kinds[0])
		})
	}
}

// TestObjectNames has workloads that differ in one of name and service account.
func TestObjectNames(t *testing.T) {
	long := strings.Repeat("x", 200)
	names := map[string]bool{}
	for _, w := range []dependencies.Workload{
		{Name: "web", ServiceAccount: "web"}, {Name: "web", ServiceAccount: "default"}, {Name: "web", ServiceAccount: "a.b"},
		{Name: "web.a", ServiceAccount: "b"}, {Name: "web.default", ServiceAccount: "web.default"}, {Name: long, ServiceAccount: long + "1"}, {Name: long, ServiceAccount: long + "2"},
	} {
		name := objectName(&dependencies.WorkloadReport{Workload: w}, "-calls")
		require.False(t, names[name], name)
		require.Empty(t, validation.IsDNS1123Subdomain(name), name)
		names[name] = true
	}
	require.True(t, names["web-calls"] && names["web.default-calls"], names)
}

// TestPeersOfServices checks what a NetworkPolicy allows for a service; a rule without peers would allow any address.
func TestPeersOfServices(t *testing.T) {
	port := []dependencies.Port{{Number: 80, Target: "80"}}
	for name, c := range map[string]struct {
		service dependencies.Service
		peers   int // 0: no rule
		note    string
	}{
		"Pods":                {dependencies.Service{Pods: map[string]string{"app": "a"}, Ports: port}, 1, ""},
		"nothing":             {dependencies.Service{Ports: port}, 0, "left out: no Pods and no fixed addresses"},
		"no IP addresses":     {dependencies.Service{Addresses: []string{"a.example.com"}, Ports: port}, 0, "left out: no Pods and no fixed addresses"},
		"addresses":           {dependencies.Service{Addresses: []string{"192.0.2.1", "192.0.2.2"}, Ports: port}, 2, ""},
		"addresses and Pods":  {dependencies.Service{Pods: map[string]string{"app": "a"}, Addresses: []string{"192.0.2.1"}, Ports: port}, 2, ""},
		"addresses and names": {dependencies.Service{Addresses: []string{"192.0.2.1"}, Names: []string{"b.example.com"}, Ports: port}, 1, "without its endpoints b.example.com"},
	} {
		t.Run(name, func(t *testing.T) {
			c.service.Kind = model.KindServiceEntry
			rule, notes := networkRule(&dependencies.CallReport{Host: "a.example.com", Service: c.service})
			if c.peers == 0 {
				require.Nil(t, rule)
			} else {
				require.Len(t, rule["to"], c.peers)
			}
			require.Contains(t, strings.Join(notes, "\n"), c.note)
		})
	}
}

func TestWholeReports(t *testing.T) {
	require.NoError(t, isWhole(&dependencies.Report{Others: []explain.PeerQuery{{ControlPlane: "a"}}}))
	for name, r := range map[string]*dependencies.Report{
		"silent":           {Others: []explain.PeerQuery{{Silent: "timeout"}}},
		"left out":         {LeftOut: 1},
		"a peer left some": {Others: []explain.PeerQuery{{LeftOut: 1}}},
	} {
		t.Run(name, func(t *testing.T) { require.ErrorContains(t, isWhole(r), "would forbid calls") })
	}
}
