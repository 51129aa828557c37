package inspect

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/cli/client"
	"github.com/moonsail/moonsail/internal/controlplane/debug"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/changelog"
)

// timed returns a change that was observed some time before noon.
func timed(rev model.Revision, ago, send, ack time.Duration, bytes int64) changelog.Change {
	name := "r" + strconv.Itoa(int(rev))
	return changelog.Change{
		Revision: rev, State: changelog.Distributed, Observed: noon.Add(-ago), Bytes: bytes,
		Timeline: changelog.Timeline{0, 0, 0, send, send + ack},
		Objects:  []changelog.ChangedObject{{Key: model.Key{Kind: model.KindVirtualService, Namespace: "shop", Name: name}}}, ObjectCount: 1,
	}
}

// changesAt serves a list of changes at noon, the newest first. It honours ?n=, as a control plane does.
func changesAt(t *testing.T, changes ...changelog.Change) (address string) {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(r.URL.Query().Get("n"))
		_ = json.NewEncoder(w).Encode(debug.ChangeList{Now: noon, Newest: changes[0].Revision, Changes: changes[:min(n, len(changes))]})
	}))
	t.Cleanup(srv.Close)
	return srv.URL
}

// revisionsOf returns the first column of a table.
func revisionsOf(out string) (revisions []string) {
	for i, row := range strings.Split(strings.TrimSpace(out), "\n") {
		if i > 0 {
			revisions = append(revisions, strings.Fields(row)[0])
		}
	}
	return revisions
}

func TestSelectChanges(t *testing.T) {
	const ms = time.Millisecond
	var list []changelog.Change // 30 fast ones, and three others that are older
	for rev := model.Revision(33); rev > 3; rev-- {
		list = append(list, timed(rev, time.Minute, ms, ms, 10))
	}
	list = append(list, timed(3, 10*time.Minute, ms, 50*ms, 30), timed(2, 20*time.Minute, 90*ms, 2*ms, 20), timed(1, time.Hour, ms, 40*ms, 900))
	address := changesAt(t, list...)
	for name, tc := range map[string]struct {
		args string
		want []string // of the table
	}{
		"newest":            {"--number 2", []string{"32", "33"}},
		"by total":          {"--sort total --number 3", []string{"2", "3", "1"}},
		"by ACK":            {"--sort ack --number 3", []string{"3", "1", "2"}},
		"by another stage":  {"--sort send --number 1", []string{"2"}},
		"by bytes":          {"--sort bytes --number 3", []string{"1", "3", "2"}},
		"equal ones":        {"--sort derive --number 2", []string{"33", "32"}},
		"since":             {"--since 30m --number 32", []string{"2", "3", "4"}},
		"since and by ACK":  {"--since 30m --sort ack --number 2", []string{"3", "2"}},
		"since, all of it":  {"--since 2h", []string{"1", "2", "3"}},
		"since, none of it": {"--since 10s", nil},
	} {
		t.Run(name, func(t *testing.T) {
			status, out, errOut := moonsail(t, append([]string{"changes", "--address", address}, strings.Fields(tc.args)...)...)
			require.Zero(t, status, errOut)
			if tc.want == nil {
				require.Equal(t, "no changes in the last 10s\n", out)
				return
			}
			require.Equal(t, tc.want, revisionsOf(out)[:len(tc.want)], out)
		})
	}

	t.Run("all since then", func(t *testing.T) {
		_, out, _ := moonsail(t, "changes", "--since", "2h", "--address", address)
		require.Len(t, revisionsOf(out), 33)
	})
	t.Run("JSON", func(t *testing.T) {
		_, out, _ := moonsail(t, "changes", "--sort", "total", "--number", "2", "-o", "json", "--address", address)
		var got debug.ChangeList
		require.NoError(t, json.Unmarshal([]byte(out), &got))
		require.Equal(t, model.Revision(2), got.Changes[0].Revision)
		require.Equal(t, model.Revision(3), got.Changes[1].Revision)
	})
	t.Run("names", func(t *testing.T) {
		_, out, _ := moonsail(t, "changes", "--sort", "total", "--number", "2", "-o", "name", "--address", address)
		require.Equal(t, "virtualservice/shop/r2\nvirtualservice/shop/r3\n", out)
	})
}

// TestSortOfReplicas checks that the number is that of all replicas together.
func TestSortOfReplicas(t *testing.T) {
	const ms = time.Millisecond
	lists := []debug.ChangeList{
		{Now: noon, Changes: []changelog.Change{timed(2, time.Minute, ms, ms, 1), timed(1, time.Hour, ms, 30*ms, 1)}},
		{Now: noon, Changes: []changelog.Change{timed(9, time.Second, ms, 20*ms, 1)}},
	}
	list := joinChanges([]*client.Replica{{Name: "a"}, {Name: "b"}}, lists)
	f := changesFlags{sort: sortTotal, count: 2}
	f.order(&list)
	require.Len(t, list.Changes, 2)
	require.Equal(t, "a", list.Changes[0].ControlPlane)
	require.Equal(t, model.Revision(1), list.Changes[0].Revision)
	require.Equal(t, "b", list.Changes[1].ControlPlane)
}

func TestWrongSelection(t *testing.T) {
	for name, tc := range map[string]struct{ args, want string }{
		"unknown field":  {"--sort totl", `--sort "totl": unknown field: use time, total, store, derive, translate, send, ack, bytes`},
		"negative":       {"--since -5m", "--since -5m0s: negative"},
		"watch and sort": {"--watch --sort total", "--watch: prints changes as they come: leave out --sort"},
	} {
		t.Run(name, func(t *testing.T) {
			status, _, errOut := moonsail(t, append([]string{"changes"}, strings.Fields(tc.args)...)...)
			require.Equal(t, 2, status)
			require.Contains(t, errOut, tc.want)
		})
	}
}

func TestCompleteSort(t *testing.T) {
	_, out, _ := moonsail(t, "__complete", "changes", "--sort", "")
	require.Contains(t, out, "time\ntotal\nstore\nderive\ntranslate\nsend\nack\nbytes\n")
}

// overdue returns a change that was sent and that a proxy has not answered.
func overdue(rev model.Revision, ago time.Duration) changelog.Change {
	c := timed(rev, ago, 13*time.Millisecond, 5300*time.Microsecond, 1)
	c.State, c.Proxies = changelog.Distributing, changelog.Proxies{Concerned: 12, Acked: 11}
	c.Times = changelog.Times{Stored: c.Observed, Derived: c.Observed, Translated: c.Observed, Published: c.Observed, FirstSent: c.Observed, LastAcked: c.Observed}
	return c
}

// TestTimesOfAwaitedChanges checks that a change that a proxy lacks does not look fast.
func TestTimesOfAwaitedChanges(t *testing.T) {
	address := changesAt(t, timed(3, time.Second, 0, 900*time.Millisecond, 1), overdue(2, 5413*time.Millisecond))
	_, out, errOut := moonsail(t, "changes", "--address", address)
	require.Regexp(t, `\n2 .* 13\.0  >5400\.0  >5413\.0  11/12 \(waiting 5\.4s\)`, out, errOut)
	for _, by := range []string{"total", "ack"} {
		_, out, errOut = moonsail(t, "changes", "--sort", by, "--address", address)
		require.Equal(t, []string{"2", "3"}, revisionsOf(out), errOut)
	}
}

// TestOpenStage checks which stage the time so far belongs to.
func TestOpenStage(t *testing.T) {
	for name, tc := range map[string]struct {
		times changelog.Times
		want  string // the stages
	}{
		"observed":   {changelog.Times{}, ">1000.0 0.0 0.0 0.0 0.0"},
		"stored":     {changelog.Times{Stored: noon}, "0.0 >1000.0 0.0 0.0 0.0"},
		"derived":    {changelog.Times{Stored: noon, Derived: noon}, "0.0 0.0 >1000.0 0.0 0.0"},
		"published":  {changelog.Times{Stored: noon, Derived: noon, Published: noon}, "0.0 0.0 0.0 >1000.0 0.0"},
		"sent":       {changelog.Times{Stored: noon, Derived: noon, Published: noon, FirstSent: noon}, "0.0 0.0 0.0 0.0 >1000.0"},
		"superseded": {changelog.Times{Stored: noon, Derived: noon, Published: noon, LastAcked: noon}, "0.0 0.0 0.0 0.0 >1000.0"},
	} {
		t.Run(name, func(t *testing.T) {
			c := changelog.Change{State: changelog.Distributing, Observed: noon, Times: tc.times, Timeline: changelog.Timeline{-1, -1, -1, -1, -1}}
			times := timesAt(&c, noon.Add(time.Second), tableUnit)
			var got []string
			for _, s := range changelog.Stages {
				got = append(got, times.stage(s))
			}
			require.Equal(t, tc.want, strings.Join(got, " "))
			require.Equal(t, ">1000.0", times.sum())
		})
	}
}

func TestExplainAwaitedChange(t *testing.T) {
	e := reviewsChange()
	c := overdue(3, 5413*time.Millisecond)
	e.Change, e.State = &c, changelog.Distributing
	address := several(t, reviewsPage, e, e)
	_, out, errOut := moonsail(t, "explain", "vs/reviews", "-n", "shop", "--address", address)
	require.Regexp(t, `\n  ack       >5400\.0 ms  .* last proxy answered: not yet\n  total     >5413\.0 ms so far  0 resources`, out, errOut)
}
