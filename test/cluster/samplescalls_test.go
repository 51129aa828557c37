package cluster

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"
)

// jason is the user whose calls bookinfo's samples treat differently.
const jason = "jason"

// kubernetesGateways is the router of the Gateway API's Gateway of bookinfo.
const kubernetesGateways = "gateway-api"

// expectation describes who answers calls once a sample is applied.
type expectation struct {
	gateway    string   // port of the ingress that the call goes to, or kubernetesGateways; "": the client calls through its sidecar
	host, path string   // "": "/"
	user       string   // header end-user
	by         []string // applications with their version, or statuses: each answers, and no other
	percent    []int    // share of each, if stated
	after      time.Duration
}

// check makes calls until the expected applications have answered. No other may answer.
func (s *trialOfSamples) check(file string, e expectation) {
	var heard map[string]int
	s.c.Eventually(s.t, fmt.Sprintf("%s: %+v", file, e), func(ctx context.Context) error {
		heard = map[string]int{}
		for range e.calls() {
			began := time.Now()
			who, err := s.call(ctx, e)
			switch {
			case err != nil:
				return err
			case !slices.Contains(e.by, who):
				return fmt.Errorf("%s answered", who)
			case time.Since(began) < e.after:
				return fmt.Errorf("an answer after %s", time.Since(began))
			}
			heard[who]++
		}
		return e.missing(heard)
	})
	s.t.Logf("%s: %+v: %v", file, e, heard)
}

// calls returns how many calls prove the expectation with an error of less than one in a million.
func (e *expectation) calls() int {
	switch {
	case e.after > 0:
		return 1
	case len(e.percent) > 0:
		return 400
	case len(e.by) > 1:
		return 50
	}
	return 5
}

// missing reports who has answered too seldom or too often.
func (e *expectation) missing(heard map[string]int) error {
	for i, who := range e.by {
		if heard[who] == 0 {
			return fmt.Errorf("%s has not answered: %v", who, heard)
		}
		if len(e.percent) == 0 {
			continue
		}
		share := float64(e.percent[i]) / 100
		n := float64(e.calls())
		if off := math.Abs(float64(heard[who]) - n*share); off > 5*math.Sqrt(n*share*(1-share)) {
			return fmt.Errorf("%s is to answer %d %% of the calls: %v", who, e.percent[i], heard)
		}
	}
	return nil
}

// call returns who answered.
func (s *trialOfSamples) call(ctx context.Context, e expectation) (string, error) {
	to := s.client
	switch {
	case e.gateway == kubernetesGateways:
		to = "127.0.0.1:80" // it listens on all addresses
	case e.gateway != "":
		to = s.ingress + e.gateway
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+to+"/"+strings.TrimPrefix(e.path, "/"), http.NoBody)
	if err != nil {
		return "", err
	}
	req.Host = e.host
	if e.user != "" {
		req.Header.Set("end-user", e.user)
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Sprint(resp.StatusCode), nil
	}
	return resp.Header.Get("X-App"), nil
}

func answeredBy(host string, by ...string) expectation { return expectation{host: host, by: by} }

// split expects calls to be spread over two applications, in percent.
func split(host, a, b string, percent int) expectation {
	return expectation{host: host, by: []string{a, b}, percent: []int{percent, 100 - percent}}
}

func forJason(host string, by ...string) expectation {
	return expectation{host: host, user: jason, by: by}
}

// checkedSamples are the expectations by file. A sample that names something without endpoints (a second version of
// ratings and details is not deployed) gives a 503.
var checkedSamples = map[string][]expectation{
	"bookinfo/networking/bookinfo-gateway.yaml": {
		{gateway: ":8080", path: "productpage", by: []string{"productpage-v1"}},
		{gateway: ":8080", path: "static/x", by: []string{"productpage-v1"}},
		{gateway: ":8080", path: "reviews", by: []string{"404"}},
	},
	// The applications of this test do not speak TLS.
	"bookinfo/networking/destination-rule-all-mtls.yaml": {answeredBy("reviews:9080", "503"), answeredBy("details:9080", "503")},
	"bookinfo/networking/destination-rule-all.yaml":      {answeredBy("reviews:9080", "reviews-v1", "reviews-v2", "reviews-v3"), answeredBy("details:9080", "details-v1")},
	"bookinfo/networking/destination-rule-reviews.yaml":  {answeredBy("reviews:9080", "reviews-v1", "reviews-v2", "reviews-v3")},

	"bookinfo/networking/fault-injection-details-v1.yaml": {answeredBy("details:9080", "555")},
	"bookinfo/networking/virtual-service-all-v1.yaml": {
		answeredBy("reviews:9080", "reviews-v1"), answeredBy("ratings:9080", "ratings-v1"),
		answeredBy("details:9080", "details-v1"), answeredBy("productpage:9080", "productpage-v1"),
	},
	"bookinfo/networking/virtual-service-details-v2.yaml":       {answeredBy("details:9080", "503")},
	"bookinfo/networking/virtual-service-ratings-db.yaml":       {answeredBy("ratings:9080", "503"), answeredBy("reviews:9080", "reviews-v3")},
	"bookinfo/networking/virtual-service-ratings-mysql-vm.yaml": {answeredBy("ratings:9080", "503"), answeredBy("reviews:9080", "reviews-v3")},
	"bookinfo/networking/virtual-service-ratings-mysql.yaml":    {answeredBy("ratings:9080", "503"), answeredBy("reviews:9080", "reviews-v3")},
	"bookinfo/networking/virtual-service-ratings-test-abort.yaml": {
		forJason("ratings:9080", "500"), answeredBy("ratings:9080", "ratings-v1"),
	},
	"bookinfo/networking/virtual-service-ratings-test-delay.yaml": {
		{host: "ratings:9080", user: jason, by: []string{"ratings-v1"}, after: 7 * time.Second}, answeredBy("ratings:9080", "ratings-v1"),
	},
	"bookinfo/networking/virtual-service-reviews-50-v3.yaml":       {split("reviews:9080", "reviews-v1", "reviews-v3", 50)},
	"bookinfo/networking/virtual-service-reviews-80-20.yaml":       {split("reviews:9080", "reviews-v1", "reviews-v2", 80)},
	"bookinfo/networking/virtual-service-reviews-90-10.yaml":       {split("reviews:9080", "reviews-v1", "reviews-v2", 90)},
	"bookinfo/networking/virtual-service-reviews-jason-v2-v3.yaml": {forJason("reviews:9080", "reviews-v2"), answeredBy("reviews:9080", "reviews-v3")},
	"bookinfo/networking/virtual-service-reviews-test-v2.yaml":     {forJason("reviews:9080", "reviews-v2"), answeredBy("reviews:9080", "reviews-v1")},
	"bookinfo/networking/virtual-service-reviews-v2-v3.yaml":       {split("reviews:9080", "reviews-v2", "reviews-v3", 50)},
	"bookinfo/networking/virtual-service-reviews-v3.yaml":          {answeredBy("reviews:9080", "reviews-v3")},

	"helloworld/helloworld-gateway.yaml": {{gateway: ":80", path: "hello", by: []string{"helloworld-v1", "helloworld-v2"}}},
	"httpbin/httpbin-gateway.yaml":       {{gateway: ":80", path: "anything", by: []string{"httpbin-v1"}}},

	"bookinfo/gateway-api/bookinfo-gateway.yaml": {
		{gateway: kubernetesGateways, path: "productpage", by: []string{"productpage-v1"}},
		{gateway: kubernetesGateways, path: "reviews", by: []string{"404"}},
	},
	"bookinfo/gateway-api/route-all-v1.yaml": {
		answeredBy("reviews:9080", "reviews-v1"), answeredBy("ratings:9080", "ratings-v1"),
		answeredBy("details:9080", "details-v1"), answeredBy("productpage:9080", "productpage-v1"),
	},
	"bookinfo/gateway-api/route-reviews-50-v3.yaml": {split("reviews:9080", "reviews-v1", "reviews-v3", 50)},
	"bookinfo/gateway-api/route-reviews-90-10.yaml": {split("reviews:9080", "reviews-v1", "reviews-v2", 90)},
	"bookinfo/gateway-api/route-reviews-v1.yaml":    {answeredBy("reviews:9080", "reviews-v1")},
	"bookinfo/gateway-api/route-reviews-v3.yaml":    {answeredBy("reviews:9080", "reviews-v3")},
}
