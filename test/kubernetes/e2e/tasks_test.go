package e2e

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Istio's samples, as YAML of ours with the same shape.
var (
	//go:embed testdata/bookinfo.yaml
	bookinfoYAML string
	//go:embed testdata/httpbin.yaml
	httpbinYAML string
	//go:embed testdata/sleep.yaml
	sleepYAML string
)

// page is an answer of the application, or an error.
type page struct {
	Version string              `json:"version"`
	Path    string              `json:"path"`
	Headers map[string][]string `json:"headers"`
	Calls   map[string]struct {
		Took   time.Duration `json:"took"`
		Error  string        `json:"error"`
		Answer page          `json:"answer"`
	} `json:"calls"`
	err string
}

// call makes calls from the Deployment sleep. args are arguments of `app get`.
func call(t *testing.T, ns string, args ...string) []page {
	t.Helper()
	out, err := kubectlOutput(t.Context(), nil, append([]string{"-n", ns, "exec", "deployment/sleep", "-c", "sleep", "--", "/app", "get"}, args...)...)
	var pages []page
	for line := range strings.Lines(out) {
		var p page
		if text, ok := strings.CutPrefix(line, "error: "); ok {
			p.err = strings.TrimSpace(text)
		} else if err := json.Unmarshal([]byte(line), &p); err != nil {
			t.Fatalf("unexpected answer %q: %v", line, err)
		}
		pages = append(pages, p)
	}
	if len(pages) == 0 {
		t.Fatal(err)
	}
	return pages
}

// TestTasks applies the configuration of Istio's task pages to Istio's samples, and makes their calls.
func TestTasks(t *testing.T) {
	ns := namespace(t)
	apply(t, ns, bookinfoYAML)
	apply(t, ns, httpbinYAML)
	apply(t, ns, sleepYAML)
	for _, name := range []string{"productpage-v1", "details-v1", "ratings-v1", "reviews-v1", "reviews-v2", "reviews-v3", "httpbin-v1", "httpbin-v2", "sleep"} {
		rollout(t, ns, "deployment/"+name)
	}
	eventually(t, time.Minute, func() error { return onlyErrors(call(t, ns, "-n=20", productpage), none) })
	t.Run("request routing", func(t *testing.T) { testRequestRouting(t, ns) })
	t.Run("fault injection", func(t *testing.T) { testFaultInjection(t, ns) })
	t.Run("traffic shifting", func(t *testing.T) { testTrafficShifting(t, ns) })
	t.Run("request timeouts", func(t *testing.T) { testRequestTimeouts(t, ns) })
	t.Run("circuit breaking", func(t *testing.T) { testCircuitBreaking(t, ns) })
	t.Run("mirroring", func(t *testing.T) { testMirroring(t, ns) })
	t.Run("ingress", func(t *testing.T) { testIngress(t, ns) })
	t.Run("egress", func(t *testing.T) { testEgress(t, ns) })
}

const productpage = "http://productpage:9080/productpage"

// allV1 routes each service of bookinfo to its version 1.
const allV1 = `
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: productpage}
spec: {hosts: [productpage], http: [{route: [{destination: {host: productpage, subset: v1}}]}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: details}
spec: {hosts: [details], http: [{route: [{destination: {host: details, subset: v1}}]}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: ratings}
spec: {hosts: [ratings], http: [{route: [{destination: {host: ratings, subset: v1}}]}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: reviews}
spec: {hosts: [reviews], http: [{route: [{destination: {host: reviews, subset: v1}}]}]}
`

// reviewsByUser routes the user jason to version 2 of reviews, and others to version 1.
const reviewsByUser = `
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: reviews}
spec:
  hosts: [reviews]
  http:
  - match: [{headers: {end-user: {exact: jason}}}]
    route: [{destination: {host: reviews, subset: v2}}]
  - route: [{destination: {host: reviews, subset: v1}}]
`

var jason = "-H=end-user:jason"

// none is the expectation that no call fails.
func none(p page) error {
	if p.err != "" {
		return fmt.Errorf("failed: %s", p.err)
	}
	for name, c := range p.Calls {
		if c.Error != "" {
			return fmt.Errorf("productpage's call of %s failed: %s", name, c.Error)
		}
	}
	return nil
}

// reviewsOf expects a version of reviews.
func reviewsOf(version string) func(page) error {
	return func(p page) error {
		if err := none(p); err != nil {
			return err
		}
		if got := p.Calls["reviews"].Answer.Version; got != version {
			return fmt.Errorf("version %s of reviews answered: expected %s", got, version)
		}
		return nil
	}
}

// onlyErrors returns the first error of check.
func onlyErrors(pages []page, check func(page) error) error {
	for i, p := range pages {
		if err := check(p); err != nil {
			return fmt.Errorf("call %d of %d: %w", i+1, len(pages), err)
		}
	}
	return nil
}

func testRequestRouting(t *testing.T, ns string) {
	apply(t, ns, allV1)
	eventually(t, 10*time.Second, func() error { return onlyErrors(call(t, ns, "-n=20", productpage), reviewsOf("v1")) })
	apply(t, ns, reviewsByUser)
	eventually(t, 10*time.Second, func() error { return onlyErrors(call(t, ns, "-n=20", jason, productpage), reviewsOf("v2")) })
	if err := onlyErrors(call(t, ns, "-n=20", productpage), reviewsOf("v1")); err != nil {
		t.Error(err)
	}
}

// faultYAML makes calls of ratings fail for the user jason. FAULT is the fault.
const faultYAML = `
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: ratings}
spec:
  hosts: [ratings]
  http:
  - match: [{headers: {end-user: {exact: jason}}}]
    fault: FAULT
    route: [{destination: {host: ratings, subset: v1}}]
  - route: [{destination: {host: ratings, subset: v1}}]
`

func testFaultInjection(t *testing.T, ns string) {
	apply(t, ns, allV1)
	apply(t, ns, reviewsByUser)
	apply(t, ns, strings.ReplaceAll(faultYAML, "FAULT", "{delay: {percentage: {value: 100}, fixedDelay: 7s}}"))
	eventually(t, 30*time.Second, func() error {
		return onlyErrors(call(t, ns, jason, productpage), func(p page) error {
			if c := p.Calls["reviews"]; !strings.Contains(c.Error, "deadline exceeded") || c.Took < 2900*time.Millisecond {
				return fmt.Errorf("productpage did not give up after 3 s: %+v", c)
			}
			return nil
		})
	})
	if err := onlyErrors(call(t, ns, "-n=10", productpage), reviewsOf("v1")); err != nil {
		t.Error("another user: ", err)
	}
	apply(t, ns, strings.ReplaceAll(faultYAML, "FAULT", "{abort: {percentage: {value: 100}, httpStatus: 500}}"))
	eventually(t, 30*time.Second, func() error {
		return onlyErrors(call(t, ns, "-n=10", jason, productpage), func(p page) error {
			if c := p.Calls["reviews"].Answer.Calls["ratings"]; !strings.Contains(c.Error, "status 500") || !strings.Contains(c.Error, "fault filter abort") {
				return fmt.Errorf("the call of ratings did not fail with 500: %+v", c)
			}
			return nil
		})
	})
	if err := onlyErrors(call(t, ns, "-n=10", productpage), reviewsOf("v1")); err != nil {
		t.Error("another user: ", err)
	}
}

func testTrafficShifting(t *testing.T, ns string) {
	apply(t, ns, allV1)
	apply(t, ns, `
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: reviews}
spec:
  hosts: [reviews]
  http:
  - route:
    - {destination: {host: reviews, subset: v1}, weight: 50}
    - {destination: {host: reviews, subset: v3}, weight: 50}
`)
	eventually(t, 20*time.Second, func() error {
		by := map[string]int{}
		for _, p := range call(t, ns, "-n=200", "-c=2", productpage) {
			if err := none(p); err != nil {
				return err
			}
			by[p.Calls["reviews"].Answer.Version]++
		}
		// Of 200 calls that a fair coin divides, fewer than 65 go one way once in a million times.
		if by["v1"] < 65 || by["v3"] < 65 || by["v2"] > 0 {
			return fmt.Errorf("calls by version of reviews: %v: expected half v1, half v3", by)
		}
		t.Logf("200 calls by version of reviews: %v", by)
		return nil
	})
	apply(t, ns, strings.ReplaceAll(allV1, "host: reviews, subset: v1", "host: reviews, subset: v3"))
	eventually(t, 10*time.Second, func() error { return onlyErrors(call(t, ns, "-n=20", productpage), reviewsOf("v3")) })
}

func testRequestTimeouts(t *testing.T, ns string) {
	apply(t, ns, allV1)
	apply(t, ns, `
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: ratings}
spec:
  hosts: [ratings]
  http:
  - fault: {delay: {percentage: {value: 100}, fixedDelay: 2s}}
    route: [{destination: {host: ratings, subset: v1}}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: reviews}
spec: {hosts: [reviews], http: [{route: [{destination: {host: reviews, subset: v2}}], timeout: 0.5s}]}
`)
	eventually(t, 20*time.Second, func() error {
		return onlyErrors(call(t, ns, productpage), func(p page) error {
			if c := p.Calls["reviews"]; !strings.Contains(c.Error, "status 504") || c.Took < 450*time.Millisecond || c.Took > 2*time.Second {
				return fmt.Errorf("the call of reviews did not end with 504 after 0.5 s: %+v", c)
			}
			return nil
		})
	})
	apply(t, ns, allV1)
}

func testCircuitBreaking(t *testing.T, ns string) {
	apply(t, ns, `
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: httpbin}
spec:
  host: httpbin
  trafficPolicy:
    connectionPool: {tcp: {maxConnections: 1}, http: {http1MaxPendingRequests: 1, maxRequestsPerConnection: 1}}
    outlierDetection: {consecutive5xxErrors: 1, interval: 1s, baseEjectionTime: 3m, maxEjectionPercent: 100}
`)
	const slow = "http://httpbin:8000/delay/50ms"
	eventually(t, 30*time.Second, func() error {
		alone, refused := call(t, ns, "-n=5", slow), 0
		if err := onlyErrors(alone, none); err != nil {
			return fmt.Errorf("one call at a time: %w", err)
		}
		for _, p := range call(t, ns, "-n=60", "-c=5", slow) {
			switch {
			case p.err == "":
			case strings.Contains(p.err, "status 503") && strings.Contains(p.err, "overflow"):
				refused++
			default:
				return fmt.Errorf("unexpected error: %s", p.err)
			}
		}
		if refused == 0 || refused == 60 {
			return fmt.Errorf("%d of 60 calls, 5 at a time, overflowed", refused)
		}
		t.Logf("%d of 60 calls, 5 at a time, overflowed", refused)
		return nil
	})
	kubectl(t, "-n", ns, "delete", "destinationrule", "httpbin")
}

func testMirroring(t *testing.T, ns string) {
	apply(t, ns, `
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: httpbin}
spec: {host: httpbin, subsets: [{name: v1, labels: {version: v1}}, {name: v2, labels: {version: v2}}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: httpbin}
spec:
  hosts: [httpbin]
  http:
  - route: [{destination: {host: httpbin, subset: v1}}]
    mirror: {host: httpbin, subset: v2}
    mirrorPercentage: {value: 100}
`)
	const calls = 20
	eventually(t, 30*time.Second, func() error {
		before := requestsOf(t, ns, "httpbin", "v2")
		for _, p := range call(t, ns, "-n="+strconv.Itoa(calls), "http://httpbin:8000/mirrored") {
			if p.Version != "v1" {
				return fmt.Errorf("version %q answered: expected v1: %s", p.Version, p.err)
			}
		}
		var got int
		for range 10 { // mirrored calls end after those that are answered
			if got = requestsOf(t, ns, "httpbin", "v2") - before; got >= calls {
				break
			}
			time.Sleep(200 * time.Millisecond)
		}
		if got != calls {
			return fmt.Errorf("version 2 received %d requests: expected %d", got, calls)
		}
		return nil
	})
}

// requestsOf returns the number of requests that a version's sidecar received, by Istio's metric.
func requestsOf(t *testing.T, ns, app, version string) int {
	t.Helper()
	p := pods(t, ns, "app="+app+",version="+version)[0]
	text := kubectl(t, "-n", ns, "exec", p.Name, "-c", app, "--", "/app", "get", "http://127.0.0.1:15020/stats/prometheus")
	sum := 0
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "istio_requests_total{") && strings.Contains(line, `reporter="destination"`) {
			n, err := strconv.Atoi(strings.TrimSpace(line[strings.LastIndex(line, " "):]))
			if err != nil {
				t.Fatal(err)
			}
			sum += n
		}
	}
	return sum
}

// gatewayChart installs the chart gateway, with a Service within the cluster.
func gatewayChart(t *testing.T, ns, name string) {
	t.Helper()
	helm(t, "install", name, chart("gateway"), "-n", ns, "--set", "service.type=ClusterIP,autoscaling.enabled=false")
	rollout(t, ns, "deployment/"+name)
}

func testIngress(t *testing.T, ns string) {
	gatewayChart(t, ns, "istio-ingressgateway")
	apply(t, ns, `
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: httpbin}
spec:
  selector: {istio: ingressgateway}
  servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: [httpbin.example.com]}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: httpbin-outside}
spec:
  hosts: [httpbin.example.com]
  gateways: [httpbin]
  http:
  - match: [{uri: {prefix: /status}}, {uri: {prefix: /delay}}]
    route: [{destination: {port: {number: 8000}, host: httpbin}}]
---
apiVersion: v1
kind: Pod
metadata: {name: outside}
spec:
  nodeName: node1
  hostNetwork: true
  containers: [{name: app, image: "localhost/app:1", args: [sleep]}]
`)
	kubectl(t, "-n", ns, "wait", "--for=condition=Ready", "pod/outside", "--timeout=1m")
	url := "http://" + get[corev1.Service](t, "-n", ns, "service", "istio-ingressgateway").Spec.ClusterIP
	get := func(args ...string) string {
		out, _ := kubectlOutput(t.Context(), nil, append([]string{"-n", ns, "exec", "outside", "--", "/app", "get"}, args...)...)
		return out
	}
	eventually(t, 30*time.Second, func() error {
		out := get("-H=Host:httpbin.example.com", url+"/status/200")
		if !strings.Contains(out, `"path":"/status/200"`) || !strings.Contains(out, "X-Envoy-External-Address") && !strings.Contains(out, "X-Forwarded-For") {
			return fmt.Errorf("a call from outside: %s", out)
		}
		return nil
	})
	for _, args := range [][]string{{"-H=Host:httpbin.example.com", url + "/headers"}, {"-H=Host:other.example.com", url + "/status/200"}} {
		if out := get(args...); !strings.Contains(out, "status 404") {
			t.Errorf("%v: expected 404, not %s", args, out)
		}
	}
}

// outsideYAML is a server that is not in the mesh, known to it as outside.example.com.
const outsideYAML = `
apiVersion: v1
kind: Pod
metadata: {name: server, labels: {app: server, sidecar.istio.io/inject: "false"}}
spec: {containers: [{name: app, image: "localhost/app:1", args: [serve]}]}
---
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: default}
spec: {outboundTrafficPolicy: {mode: REGISTRY_ONLY}}
`

const outsideEntryYAML = `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: outside}
spec:
  hosts: [outside.example.com]
  addresses: [240.0.0.7]
  ports: [{number: 8080, name: http, protocol: HTTP}]
  location: MESH_EXTERNAL
  resolution: STATIC
  endpoints: [{address: ADDRESS}]
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: outside}
spec: {host: outside.example.com, trafficPolicy: {tls: {mode: DISABLE}}}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: outside}
spec:
  hosts: [outside.example.com]
  http: [{timeout: 1s, route: [{destination: {host: outside.example.com}}]}]
`

const egressGatewayYAML = `
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: egress}
spec:
  selector: {istio: egressgateway}
  servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: [outside.example.com]}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: outside}
spec:
  hosts: [outside.example.com]
  gateways: [egress, mesh]
  http:
  - match: [{gateways: [mesh], port: 8080}]
    route: [{destination: {host: istio-egressgateway.NAMESPACE.svc.cluster.local, port: {number: 80}}}]
  - match: [{gateways: [egress], port: 80}]
    route: [{destination: {host: outside.example.com, port: {number: 8080}}}]
    headers: {request: {set: {through: egress}}}
`

func testEgress(t *testing.T, ns string) {
	apply(t, ns, outsideYAML)
	kubectl(t, "-n", ns, "wait", "--for=condition=Ready", "pod/server", "--timeout=1m")
	address := get[corev1.Pod](t, "-n", ns, "pod", "server").Status.PodIP
	host := "-H=Host:outside.example.com"
	eventually(t, 30*time.Second, func() error {
		if p := call(t, ns, host, "http://240.0.0.7:8080/")[0]; p.err == "" {
			return fmt.Errorf("a server that the mesh does not know was called: %+v", p)
		}
		return nil
	})
	apply(t, ns, strings.ReplaceAll(outsideEntryYAML, "ADDRESS", address))
	eventually(t, 30*time.Second, func() error { return onlyErrors(call(t, ns, "-n=10", host, "http://240.0.0.7:8080/"), none) })
	eventually(t, 10*time.Second, func() error {
		if p := call(t, ns, host, "http://240.0.0.7:8080/delay/3s")[0]; !strings.Contains(p.err, "status 504") {
			return fmt.Errorf("a call that takes 3 s with a timeout of 1 s: %+v", p)
		}
		return nil
	})
	gatewayChart(t, ns, "istio-egressgateway")
	apply(t, ns, egressGatewayYAML)
	eventually(t, 30*time.Second, func() error {
		return onlyErrors(call(t, ns, "-n=10", host, "http://240.0.0.7:8080/"), func(p page) error {
			if err := none(p); err != nil {
				return err
			}
			if len(p.Headers["Through"]) == 0 {
				return fmt.Errorf("the call did not go through the gateway: %v", p.Headers)
			}
			return nil
		})
	})
}
