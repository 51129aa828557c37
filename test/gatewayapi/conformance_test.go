// Package gatewayapi runs the Gateway API's conformance tests with a real API server, `moonsail serve`, a router (agent
// and Envoy) for each Gateway, and the suite's backends, each Pod in a separate network namespace. The script run
// starts it.
package gatewayapi

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"sigs.k8s.io/gateway-api/conformance"
	confv1 "sigs.k8s.io/gateway-api/conformance/apis/v1"
	"sigs.k8s.io/gateway-api/conformance/utils/suite"
)

// className is the class of the Gateways.
const className = "moonsail"

func TestConformance(t *testing.T) {
	if os.Getenv("MOONSAIL_CONFORMANCE") == "" {
		t.Skip("the script run starts it: make conformance")
	}
	c := startCluster(t)
	startControlPlane(t, c)
	startMachine(t, c)
	t.Setenv("KUBECONFIG", c.kubeconfig)
	conformance.RunConformanceWithOptions(t, optionsFor(t, c))
}

// optionsFor returns the options of the flags, with defaults.
func optionsFor(t *testing.T, c *cluster) suite.ConformanceOptions {
	t.Helper()
	o := conformance.DefaultOptions(t)
	o.GatewayClassName, o.CleanupBaseResources = className, false // the cluster ends with the test
	if len(o.ConformanceProfiles) == 0 {
		o.ConformanceProfiles = []suite.ConformanceProfileName{
			suite.GatewayHTTPConformanceProfileName, suite.GatewayGRPCConformanceProfileName,
			suite.GatewayTLSConformanceProfileName, suite.GatewayTCPConformanceProfileName,
		}
	}
	o.Hook = tell
	for _, d := range []*time.Duration{&o.TimeoutConfig.CreateTimeout, &o.TimeoutConfig.GetTimeout, &o.TimeoutConfig.DeleteTimeout} {
		*d = time.Minute // of the API server, which shares the machine
	}
	o.ReportOutputPath = filepath.Join(c.dir, "report.yaml")
	const url = "https://github.com/moonsail/moonsail"
	o.Implementation = confv1.Implementation{
		Organization: "moonsail", Project: "moonsail", URL: url, Version: moonsailVersion(t), Contact: []string{url + "/issues"},
	}
	return o
}

// tell reports the result of a test as soon as it has ended.
func tell(t *testing.T, test suite.ConformanceTest, _ *suite.ConformanceTestSuite) {
	result := "passed"
	switch {
	case t.Failed():
		result = "FAILED"
	case t.Skipped():
		result = "skipped"
	}
	fmt.Fprintf(os.Stderr, "==> %s %s\n", result, test.ShortName)
}
