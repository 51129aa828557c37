// Package e2e tests the mesh on real Envoys: they accept what the control plane generates, it has the intended effect
// on calls, and no request is lost while it changes.
//
// In the corpus tests an xDS server serves compiled resources, rewritten so that they work on one machine without
// interception (see loopback and harness). In the mesh tests everything is as users run it: a directory of YAML, the
// whole control plane, agents with their Envoys, applications.
package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/moonsail/moonsail/internal/sidecar/envoy"
	"github.com/moonsail/moonsail/internal/xds/server"
	"github.com/moonsail/moonsail/test/meshtest"
	"github.com/moonsail/moonsail/test/netns"
)

// patience is the time limit of conditions, long enough for a busy machine. No test draws conclusions from how long
// something took.
const (
	patience = 3 * time.Minute
	lookAt   = 10 * time.Millisecond
)

func TestMain(m *testing.M) {
	netns.Isolate()
	goleak.VerifyTestMain(m)
}

// transport is the server of a control plane's streams. Tests with whole route configurations use the other one than
// the rest, so that both are tested with Envoy.
func transport(s server.RouteStrategy) server.Transport {
	if t := os.Getenv("E2E_XDS_TRANSPORT"); t != "" {
		return server.Transport(t)
	}
	if s == server.RoutesRDS {
		return server.TransportGRPC
	}
	return server.TransportHTTP2
}

// envoyBinary returns the Envoy to run. Tests fail without one.
func envoyBinary(t *testing.T) string {
	t.Helper()
	b, err := envoy.Find("")
	require.NoError(t, err)
	return b.Path
}

// shortDir returns a folder whose path is short enough for Unix sockets.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "e2e-")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

var addresses atomic.Uint32

// ownIP returns a loopback address that no other running test of this process uses, so that the ports of a sidecar
// are free there. Addresses repeat after 254 calls.
func ownIP() string {
	pid := os.Getpid()
	return fmt.Sprintf("127.%d.%d.%d", 192+pid/250%60, pid%250, addresses.Add(1)%254+1)
}

// eventually waits for a condition that becomes true by itself; why is asked if it does not.
func eventually(t *testing.T, what string, condition func() bool, why func() string) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(lookAt)
	defer tick.Stop()
	for !condition() {
		select {
		case <-tick.C:
		case <-deadline.C:
			text := ""
			if why != nil {
				text = "\n" + why()
			}
			t.Fatalf("%s: not within %s%s", what, patience, text)
		}
	}
}

// corpus returns all tests of the translation, in the order of their names.
func corpus(t *testing.T) []*meshtest.File {
	t.Helper()
	paths, err := filepath.Glob("../meshtest/testdata/*.txtar")
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	var out []*meshtest.File
	for _, path := range paths {
		f, err := meshtest.Load(path)
		require.NoError(t, err)
		out = append(out, f)
	}
	return out
}

// lines returns the lines of a text that contain any of some words.
func lines(text string, words ...string) []string {
	var out []string
	for line := range strings.SplitSeq(text, "\n") {
		for _, w := range words {
			if strings.Contains(line, w) {
				out = append(out, line)
				break
			}
		}
	}
	return out
}
