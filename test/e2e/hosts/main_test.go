//go:build linux

// Package hosts tests the mesh on hosts in network namespaces: each has one workload with an application, an agent that
// sets the rules of interception, and a real Envoy. The control plane has another host. The tests need root (see
// package netns).
package hosts

import (
	"testing"

	"github.com/moonsail/moonsail/test/labtest"
)

func TestMain(m *testing.M) { labtest.Main(m) }
