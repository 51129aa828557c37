// Package h2spec runs all cases of h2spec, in strict mode, against the control plane's HTTP/2 server. It is a separate
// module, so that the main module does not depend on h2spec.
package h2spec

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/summerwind/h2spec/config"
	"github.com/summerwind/h2spec/generic"
	"github.com/summerwind/h2spec/hpack"
	"github.com/summerwind/h2spec/http2"
	"github.com/summerwind/h2spec/spec"

	server "github.com/moonsail/moonsail/internal/xds/http2"
)

// TestConforms checks that every case passes. It logs the cases that h2spec skips.
func TestConforms(t *testing.T) {
	s := server.New(nil, server.Options{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	defer func() {
		s.Stop()
		require.ErrorIs(t, <-served, server.ErrStopped)
	}()
	c := &config.Config{Host: "127.0.0.1", Port: l.Addr().(*net.TCPAddr).Port, Path: "/",
		Timeout: 30 * time.Second, MaxHeaderLen: 4000, Strict: true}
	passed := 0
	for _, group := range []*spec.TestGroup{generic.Spec(), http2.Spec(), hpack.Spec()} {
		group.Test(c)
		passed += group.PassedCount
		report(t, group)
	}
	require.Greater(t, passed, 140, "there are that many cases")
}

// report reports the cases that did not pass.
func report(t *testing.T, g *spec.TestGroup) {
	for _, c := range append(g.Tests, g.StrictTests...) {
		switch {
		case c.Result == nil:
		case c.Result.Failed:
			t.Errorf("%s %s: %s: %v", g.Section, c.Desc, c.Requirement, c.Result.Error)
		case c.Result.Skipped:
			t.Logf("%s %s: skipped", g.Section, c.Desc)
		}
	}
	for _, sub := range g.Groups {
		report(t, sub)
	}
}
