//go:build linux

// Package hosts tests the mesh on hosts of their own: each workload is in a network namespace,
// with an application, an agent that sets the rules of interception, and a real Envoy. The
// control plane is on another one. It takes root (see package netns).
package hosts

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/moonsail/moonsail/internal/cli"
)

// asMoonsail has the test's binary be moonsail: processes of other network namespaces are to
// be what is tested here, without being built first.
const asMoonsail = "E2E_AS_MOONSAIL"

func TestMain(m *testing.M) {
	if os.Getenv(asMoonsail) != "" {
		os.Exit(cli.Execute())
	}
	goleak.VerifyTestMain(m)
}
