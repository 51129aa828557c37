package throughput_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/lab/experiment"
	"github.com/moonsail/moonsail/internal/lab/pair"
	"github.com/moonsail/moonsail/internal/lab/throughput"
	"github.com/moonsail/moonsail/internal/sidecar/envoy"
	"github.com/moonsail/moonsail/test/labtest"
)

func TestMain(m *testing.M) { labtest.Main(m) }

// TestDefect runs the experiment with a slow filter in Moonsail's sidecars. The report must show it, and the targets
// must be missed.
func TestDefect(t *testing.T) {
	labtest.Temporary(t)
	o := throughput.QuickOptions()
	o.Programs, o.Envoy = labtest.Sidecars(t)
	o.Defect, o.Connections, o.Rates = true, 8, []int{50}
	e := throughput.New(o)
	e.Budget = 20 * time.Minute // an upper bound; it takes far less
	throughput.Shorten(e, func(string, *pair.Pair) error { return nil })
	r, err := experiment.Run(t.Context(), e)
	require.NoError(t, err)
	require.Equal(t, e.Rounds, r.Rounds)
	for _, v := range r.Variants {
		require.Len(t, v.Samples, r.Rounds, v.Name)
		for _, s := range v.Samples {
			require.Zero(t, s["failed"], v.Name)
		}
	}
	for _, c := range r.Comparisons[:2] {
		require.Equal(t, "both, mTLS, 2 workers", c.Variant)
		require.Equal(t, -1, r.Good(&c), "%+v", c)
	}
	require.Equal(t, []string{experiment.Missed, experiment.Missed}, []string{r.Targets[0].Verdict, r.Targets[1].Verdict}, "%+v", r.Targets)
	require.True(t, r.Targets[3].Met, "%+v", r.Targets[3])
	require.Empty(t, labtest.LeftOver(t))
}

// TestTargets checks that the variants of all targets are measured, with a slow filter in Moonsail's sidecars. Targets
// that compare throughput and CPU are missed, the others met.
func TestTargets(t *testing.T) {
	labtest.Long(t)
	labtest.Temporary(t)
	o := throughput.TargetsOptions()
	o.Programs, o.Envoy = labtest.Sidecars(t)
	o.Defect, o.Rates = true, []int{50}
	e := throughput.New(o)
	e.Rounds, e.Budget = 5, 20*time.Minute // an upper bound; it takes far less
	looked := map[string]bool{}
	throughput.Shorten(e, func(name string, p *pair.Pair) error {
		if len(p.Sidecars()) != 2 {
			return nil
		}
		looked[name] = strings.Contains(name, "Istio's defaults")
		return compared(t.Context(), p, looked[name])
	})
	r, err := experiment.Run(t.Context(), e)
	require.NoError(t, err)
	require.Equal(t, e.Rounds, r.Rounds)
	require.Len(t, r.Targets, 8)
	for i := range r.Targets {
		switch b := &r.Targets[i]; b.Metric {
		case "qps", "cpu":
			require.Equal(t, experiment.Missed, b.Verdict, "%+v", b)
		case "rss", "max_to_mean":
			require.True(t, b.Met, "%+v", b)
		}
	}
	require.Equal(t, "both, Istio's defaults, no log, 2 workers", r.Targets[3].Base)
	require.Equal(t, map[string]bool{
		"both, mTLS, 2 workers": false, "both, Istio's defaults, 2 workers": true, "both, Istio's defaults, no log, 2 workers": true,
	}, looked)
	require.Greater(t, r.Variant(throughput.Scoped).Summary["clusters"].Median, 10.0, "it sees services of the mesh")
	require.Less(t, r.Variant(throughput.Scoped).Summary["clusters"].Median, 40.0, "and few of them")
	require.Empty(t, labtest.LeftOver(t))
}

// marks are texts in listeners with Istio's defaults that Moonsail's do not have: those of the client for calls, those
// of the server for callers.
var marks = map[string][]string{
	"OUTBOUND": {`"istio.canonical_revision"`, `"x-envoy-peer-metadata"`, `"emit_filter_state":true`},
	"INBOUND": {
		`"istio.canonical_revision"`, `"x-envoy-peer-metadata"`, `"emit_filter_state":true`,
		`"envoy.filters.http.fault"`, `"envoy.filters.http.cors"`,
	},
}

// compared returns an error unless both sidecars of a pair have all of Istio's defaults, or none of them. Neither may
// reach the caller.
func compared(ctx context.Context, p *pair.Pair, istio bool) error {
	for direction, s := range map[string]*pair.Sidecar{"OUTBOUND": p.Client, "INBOUND": p.Server} {
		text, err := listeners(ctx, s, direction)
		if err != nil {
			return err
		}
		for _, mark := range marks[direction] {
			if strings.Contains(text, mark) != istio {
				return fmt.Errorf("%s has %s: %t", s.Name, mark, !istio)
			}
		}
		if istio && strings.Contains(text, `"disabled":true`) {
			return errors.New("filters of faults and CORS sleep")
		}
	}
	return hidden(ctx, p)
}

// listeners returns those of a direction, as JSON without spaces.
func listeners(ctx context.Context, s *pair.Sidecar, direction string) (string, error) {
	admin := envoy.NewAdmin(s.Admin)
	defer admin.Close()
	dump, err := admin.ConfigDump(ctx, url.Values{"resource": {"dynamic_listeners"}})
	if err != nil {
		return "", err
	}
	var all struct {
		Configs []json.RawMessage `json:"configs"`
	}
	if err := json.Unmarshal(dump, &all); err != nil {
		return "", err
	}
	var out bytes.Buffer
	for _, c := range all.Configs {
		var text bytes.Buffer
		if err := json.Compact(&text, c); err != nil {
			return "", err
		}
		if strings.Contains(text.String(), `"traffic_direction":"`+direction+`"`) {
			_, _ = text.WriteTo(&out) // writes to memory do not fail
		}
	}
	return out.String(), nil
}

// hidden returns an error if headers that sidecars exchange reach the caller.
func hidden(ctx context.Context, p *pair.Pair) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.URL, http.NoBody)
	if err != nil {
		return err
	}
	req.Host = p.Host
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK || resp.Header.Get("x-envoy-peer-metadata") != "" {
		return fmt.Errorf("%s, %v", resp.Status, resp.Header)
	}
	return nil
}

// TestInterrupted checks that an interrupted experiment writes a report that states it, and leaves nothing behind.
func TestInterrupted(t *testing.T) {
	out, temporary := t.TempDir(), t.TempDir()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), self, "throughput", "--quick", "--budget", "5m", "--connections", "4", "--out", out)
	programs := t.TempDir()
	require.NoError(t, os.Symlink(self, filepath.Join(programs, "moonsail")))
	cmd.Env = append(os.Environ(), labtest.AsMoonsail, "TMPDIR="+temporary, "PATH="+programs)
	progress, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	for lines := bufio.NewScanner(progress); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "round 0 ") {
			require.NoError(t, cmd.Process.Signal(os.Interrupt))
			break
		}
	}
	_, err = io.Copy(io.Discard, progress)
	require.NoError(t, err)
	var exit *exec.ExitError
	require.ErrorAs(t, cmd.Wait(), &exit)
	require.Equal(t, 130, exit.ExitCode())
	text, err := os.ReadFile(filepath.Join(out, experiment.JSONFile))
	require.NoError(t, err)
	var r experiment.Report
	require.NoError(t, json.Unmarshal(text, &r))
	require.NotEmpty(t, r.Stopped)
	require.Zero(t, r.Rounds)
	require.FileExists(t, filepath.Join(out, experiment.HTMLFile))
	left, err := os.ReadDir(temporary)
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestCheck(t *testing.T) {
	for _, change := range []func(*throughput.Options){
		func(o *throughput.Options) { o.Concurrency = nil },
		func(o *throughput.Options) { o.Concurrency = []int{-1} },
		func(o *throughput.Options) { o.Connections = 0 },
		func(o *throughput.Options) { o.Rates = []int{1} },
	} {
		o := throughput.DefaultOptions()
		require.NoError(t, o.Check())
		change(&o)
		require.Error(t, o.Check())
	}
}
