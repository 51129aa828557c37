package propagation_test

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/lab/child"
	"github.com/moonsail/moonsail/internal/lab/meshfiles"
	"github.com/moonsail/moonsail/internal/lab/propagation"
	"github.com/moonsail/moonsail/test/labtest"
)

// targeted returns a control plane that the lab does not start, on an empty directory, and options to measure it.
func targeted(t *testing.T) propagation.Options {
	t.Helper()
	o := options(t)
	o.Dir = filepath.Join(t.TempDir(), "mesh")
	require.NoError(t, os.Mkdir(o.Dir, 0o700))
	p, err := child.Start(t.Context(), "the other control plane", append(slices.Clone(o.Programs.Moonsail), "serve", "--config", o.Dir,
		"--xds-plaintext-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0", "--log-format", "json")...)
	require.NoError(t, err)
	t.Cleanup(func() { p.Stop(10 * time.Second) })
	o.External, o.ExternalPID = p.Addr(), p.Pid()
	return o
}

// TestTarget checks that another control plane is measured at its address, and its CPU time and memory by its pid. The
// report names the scenarios that were left out, and the directory is empty at the end.
func TestTarget(t *testing.T) {
	o := targeted(t)
	o.Meshes = append([]meshfiles.Shape{{Services: 4, Proxies: 20}}, o.Meshes...)
	o.Scenarios = []string{"connect-storm", "route", "storm"}
	o.Rounds, o.StormEvents = 1, 20
	report, err := propagation.Run(t.Context(), o)
	require.NoError(t, err)
	require.Equal(t, []string{"left out with --target: mesh 4x20 (--target reads one directory: run again for this mesh)"}, report.Notes)
	require.Equal(t, o.External, report.Subject)
	var names []string
	for _, r := range report.Results {
		names = append(names, r.Scenario)
		require.Zero(t, r.State.Wrong, "%s: %v", r.Scenario, r.State.First)
		require.Positive(t, r.Subject.Last.P50, r.Scenario)
		require.Positive(t, r.Subject.CPU.P50, r.Scenario)
		require.Positive(t, r.Subject.PeakRSS, r.Scenario)
		require.Positive(t, r.Baseline.Last.P50, r.Scenario)
	}
	require.Equal(t, o.Scenarios, names)
	left, err := os.ReadDir(o.Dir)
	require.NoError(t, err)
	require.Empty(t, left)
	require.Empty(t, labtest.LeftOver(t))
}

// TestUnreachableTarget checks that an unreachable target is an error at once, and that no file or process is touched.
func TestUnreachableTarget(t *testing.T) {
	o := targeted(t)
	o.Scenarios = []string{"endpoint"}
	with := func(change func(*propagation.Options)) error {
		its := o
		change(&its)
		_, err := propagation.Run(t.Context(), its)
		return err
	}
	require.ErrorContains(t, with(func(o *propagation.Options) { o.External = "127.0.0.1:1" }), "--target 127.0.0.1:1: no control plane answers")
	require.ErrorContains(t, with(func(o *propagation.Options) { o.ExternalPID = math.MaxInt32 }), "memory of process 2147483647")
	theirs := filepath.Join(o.Dir, "theirs.yaml")
	require.NoError(t, os.WriteFile(theirs, nil, 0o600))
	require.ErrorContains(t, with(func(*propagation.Options) {}), o.Dir+": not empty")
	require.FileExists(t, theirs)
	require.NoDirExists(t, o.Dir+".staging")
	require.Empty(t, labtest.LeftOver(t))
}
