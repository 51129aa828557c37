package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/lab/meshfiles"
	"github.com/moonsail/moonsail/internal/lab/propagation"
	"github.com/moonsail/moonsail/internal/lab/propagation/results"
	"github.com/moonsail/moonsail/internal/lab/propagation/session"
)

func TestLabRefuses(t *testing.T) {
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"--mesh", "5"}, `--mesh: "5": use SERVICESxPROXIES`},
		{[]string{"--mesh", "500x1000,50x500"}, "--mesh: 50x500 after 500x1000: list each mesh once, in ascending order"},
		{[]string{"--mesh", ""}, "--mesh: no mesh"},
		{[]string{"--rounds", "0"}, "--rounds must be 1 or more"},
		{[]string{"--growth", "100,100"}, "--growth: [100 100]: use ascending numbers of services, for example 100,20000"},
		{[]string{"--growth", "0,100"}, "--growth: [0 100]: use ascending numbers"},
		{[]string{"--scenario", "rout"}, `--scenario: unknown scenario "rout": use connect-storm`},
		{[]string{"--target", "127.0.0.1:1"}, "--target: needs --config"},
		{[]string{"--target", "127.0.0.1:1,pid=x", "--config", "d"}, `pid="x": use the number of a process`},
		{[]string{"--target", "nowhere", "--config", "d"}, "--target nowhere: use HOST:PORT"},
		{[]string{"--target", "istiod=1.2.3.4", "--source", "kube", "--kubeconfig", "k"}, "use HOST:PORT"},
		{[]string{"--config", "d"}, "--config: needs --target"},
		{[]string{"--budget", "1s"}, "--budget 30s or more"},
		{[]string{"--scenario", "airbnb"}, "--scenario: scenario airbnb: needs --source kube"},
		{[]string{"--scenario", "airbnb", "--source", "kube", "--kubeconfig", "k", "--target", "1.2.3.4:15010"}, "use --target NAME=1.2.3.4:15010 to measure another one in turn"},
		{[]string{"--scenario", "locks", "--source", "kube", "--kubeconfig", "k", "--target", "1.2.3.4:15010"}, "scenario locks: excludes --target"},
	} {
		t.Run(strings.Join(tc.args, " "), func(t *testing.T) {
			status, out, errOut := runLab(t, append([]string{"propagation"}, tc.args...)...)
			require.Equal(t, 2, status)
			require.Empty(t, out)
			require.Contains(t, errOut, tc.want)
		})
	}
}

func TestLabHelp(t *testing.T) {
	status, out, _ := runLab(t, "propagation", "--help")
	require.Zero(t, status)
	out = strings.Join(strings.Fields(out), " ") // without its lines, which end at the width
	for _, s := range propagation.Scenarios() {
		require.Contains(t, out, s.Name)
		require.Contains(t, out, s.About)
	}
	_, out, _ = runLab(t, "--help")
	require.Contains(t, out, "propagation")
	require.NotContains(t, out, "baseline", "it is for the lab itself")
}

func TestLabBuild(t *testing.T) {
	placeMoonsail(t)
	build := func(args ...string) propagation.Options {
		f := &propagationFlags{}
		cmd := f.command()
		require.NoError(t, cmd.ParseFlags(args))
		o, err := f.build(cmd)
		require.NoError(t, err)
		return o
	}
	require.Len(t, build().Meshes, 3)
	require.Equal(t, propagation.DefaultOptions().Rounds, build().Rounds)
	quick := build("--quick")
	require.True(t, quick.Quick)
	require.Equal(t, propagation.QuickOptions().Meshes, quick.Meshes)
	quick = build("--quick", "--mesh", "3x4", "--rounds", "5")
	require.Equal(t, []meshfiles.Shape{{Services: 3, Proxies: 4, Bystanders: 2}}, quick.Meshes)
	require.Equal(t, 5, quick.Rounds)
	require.Equal(t, 5000, build("--source", "kube", "--kubeconfig", "k").GrowthMost)
	large := build("--source", "kube", "--kubeconfig", "k", "--growth", "100,20000")
	require.Equal(t, []int{100, 20_000}, large.Growth)
	require.Zero(t, large.GrowthMost, "they are asked for")
	other := build("--target", "127.0.0.1:15010,pid=7", "--config", "d")
	require.Equal(t, "127.0.0.1:15010", other.External)
	require.Equal(t, 7, other.ExternalPID)
	peer := build("--target", "istiod=127.0.0.1:15010,pid=7", "--source", "kube", "--kubeconfig", "k")
	require.Equal(t, &session.Peer{Name: "istiod", Address: "127.0.0.1:15010", PID: 7}, peer.Peer)
	require.Empty(t, peer.External)
	f := &propagationFlags{}
	cmd := f.command()
	require.NoError(t, cmd.ParseFlags([]string{"--target", "istiod=127.0.0.1:15010"}))
	_, err := f.build(cmd)
	require.ErrorContains(t, err, "add --source kube")
}

func TestLabTable(t *testing.T) {
	side := results.Side{Last: results.Spread{P50: 3}, CPU: results.Spread{P50: 2}, PeakRSS: 50 << 20}
	half := results.Side{Last: results.Spread{P50: 2}}
	r := &results.Report{Subject: "moonsail serve", CPUs: 2, Rounds: 11, Results: []results.Result{{
		Scenario: "route", Mesh: meshfiles.Shape{Services: 5, Proxies: 7}, Subject: side, Baseline: &half, Note: "noted",
		Targets: []results.Target{{What: "last", Value: 1.5, Limit: 1.25, Unit: "x"}, {What: "bytes", Value: 10, Limit: 3072, Unit: "B", Met: true}},
		State:   &results.FinalState{Wrong: 2, First: []string{"a: stale"}},
	}}}
	var b bytes.Buffer
	require.NoError(t, printPropagation(&b, r))
	text := b.String()
	require.Regexp(t, `5x7 +route +3\.0 +2\.0 +1\.50x .* 2\.0 +0\.0 +- .* 50 MB +2 wrong`, text)
	require.Regexp(t, `last +1\.50x +1\.25x +missed`, text)
	require.Regexp(t, `bytes +10 B +3072 B +met`, text)
	require.Contains(t, text, "5x7 route: noted")
	bare := results.Side{Heard: results.Spread{N: 1, P50: 1}}
	r.Results[0].Subject.Heard, r.Results[0].Bare = results.Spread{N: 1, P50: 4}, &bare
	half.Heard = results.Spread{N: 1, P50: 8}
	var again bytes.Buffer
	require.NoError(t, printPropagation(&again, r))
	require.Contains(t, again.String(), " 4.0/8.0/1.0 ")
	require.Contains(t, text, "wrong: 5x7 route: a: stale")
	require.NotContains(t, text, "Beside")
	slow := side
	slow.Last.P50, slow.PeakRSS = 30, 0
	r.Peer = &results.PeerReport{Name: "istiod", Stopped: "it went away", Results: []results.Result{
		{Scenario: "route", Mesh: meshfiles.Shape{Services: 6, Proxies: 7}},
		{Scenario: "route", Mesh: meshfiles.Shape{Services: 5, Proxies: 7}, Subject: slow, State: &results.FinalState{Wrong: 1, First: []string{"b: lost"}}},
	}}
	b.Reset()
	require.NoError(t, printPropagation(&b, r))
	text = b.String()
	require.Regexp(t, `MESH .* OURS +ISTIOD +TIMES\n5x7 +route +last proxy's ACK, p50 +3\.0 ms +30\.0 ms +10\.0x\n5x7 +route +CPU a change, p50 .* 1\.0x\n`, text)
	require.NotContains(t, text, "peak memory", "it was measured of one alone")
	require.Contains(t, text, "wrong: 5x7 route at istiod: b: lost")
	require.Contains(t, text, "istiod: it went away")
	b.Reset()
	require.NoError(t, printPropagation(&b, &results.Report{}))
	require.Empty(t, b.String())
}
