//go:build linux

// Package hosts tests the mesh on hosts of their own: each workload is in a network namespace,
// with an application, an agent that sets the rules of interception, and a real Envoy. The
// control plane is on another one. It takes root (see package netns).
package hosts

import (
	"testing"

	"github.com/moonsail/moonsail/test/labtest"
)

func TestMain(m *testing.M) { labtest.Main(m) }
