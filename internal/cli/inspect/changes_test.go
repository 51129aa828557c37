package inspect

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/controlplane/debug"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/changelog"
	"github.com/moonsail/moonsail/internal/terminal"
	"github.com/moonsail/moonsail/test/clitest"
)

func TestChangesTable(t *testing.T) {
	status, out, errOut := moonsail(t, "changes", "--address", controlPlane(t))
	require.Zero(t, status, errOut)
	require.Equal(t, `REV  TIME          STORE  DERIVE  TRANSLATE  SEND  ACK  TOTAL  PROXIES  BYTES  OBJECTS
1*   12:00:00.000  0.1    0.3     0.2        0.4   2.1  3.1    1/1      672    VirtualService/shop/reviews
2    12:00:00.000  0.1    0.3     0.2        0.4   2.1  3.1    1/1      672    VirtualService/shop/reviews
`, out)
}

func TestNewestChange(t *testing.T) {
	status, out, _ := moonsail(t, "changes", "--number", "1", "-o", "json", "--address", controlPlane(t))
	require.Zero(t, status)
	var list debug.ChangeList
	require.NoError(t, json.Unmarshal([]byte(out), &list))
	require.Len(t, list.Changes, 1)
	require.Equal(t, model.Revision(2), list.Changes[0].Revision)
}

// TestChangesOfNamespace lists changes that are older than the newest ones of other namespaces.
func TestChangesOfNamespace(t *testing.T) {
	log := changelog.New(64, slog.New(slog.DiscardHandler), changelog.NewMetrics())
	for rev := model.Revision(1); rev <= 40; rev++ {
		namespace := "busy"
		if rev <= 3 {
			namespace = "shop"
		}
		key := model.Key{Kind: model.KindVirtualService, Namespace: namespace, Name: "reviews"}
		log.Begin(rev, []changelog.ChangedObject{{Key: key, Operation: changelog.Updated}}, noon)
		log.Published(rev, 0, noon)
	}
	srv := httptest.NewServer(debug.Handler(debug.Stages{Changes: log}, slog.New(slog.DiscardHandler)))
	defer srv.Close()
	for _, tc := range []struct {
		args []string
		want []model.Revision
	}{
		{[]string{"-n", "shop"}, []model.Revision{3, 2, 1}},
		{[]string{"-n", "shop", "--number", "2"}, []model.Revision{3, 2}},
		{[]string{"-n", "busy", "--number", "2"}, []model.Revision{40, 39}},
		{[]string{"--number", "1"}, []model.Revision{40}},
		{[]string{"-n", "none"}, nil},
	} {
		status, out, errOut := moonsail(t, append([]string{"changes", "-o", "json", "--address", srv.URL}, tc.args...)...)
		require.Zero(t, status, errOut)
		var list debug.ChangeList
		require.NoError(t, json.Unmarshal([]byte(out), &list))
		var got []model.Revision
		for _, c := range list.Changes {
			got = append(got, c.Revision)
		}
		require.Equal(t, tc.want, got, tc.args)
	}

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out := &cancelling{text: "\n3 ", cancel: cancel}
	root := clitest.Root(Commands()...)
	root.SetOut(out)
	root.SetArgs([]string{"changes", "--watch", "-n", "shop", "--address", srv.URL})
	require.Zero(t, terminal.Run(ctx, root))
	require.Contains(t, out.written.String(), "\n1 ")
}

func TestNoChanges(t *testing.T) {
	var b strings.Builder
	var f changesFlags
	require.NoError(t, f.print(&b, &changeList{}))
	require.Equal(t, "no changes yet\n", b.String())
}

func TestChangeOnItsWay(t *testing.T) {
	c := changelog.Change{State: changelog.Distributing, Observed: noon, Proxies: changelog.Proxies{Concerned: 3, Acked: 1, Nacked: 1}}
	require.Equal(t, "1/3 (1 refused) (waiting 5s)", changeProxies(terminal.Style{}, &c, noon.Add(5*time.Second)))
}

func TestWatch(t *testing.T) {
	at := func(rev model.Revision, state changelog.State) changelog.Change {
		return changelog.Change{Revision: rev, State: state, Observed: noon}
	}
	const done, busy = changelog.Distributed, changelog.Distributing
	var cw changeWatch
	for i, poll := range []struct {
		seconds int
		newest  model.Revision
		changes []changelog.Change // newest first
		want    []model.Revision
		after   model.Revision
	}{
		{0, 2, []changelog.Change{at(2, busy), at(1, done)}, []model.Revision{1}, 1},
		{1, 2, []changelog.Change{at(2, busy)}, nil, 1},
		{3, 3, []changelog.Change{at(3, done), at(2, busy)}, []model.Revision{2, 3}, 1}, // late: printed before it is distributed
		{4, 3, []changelog.Change{at(3, done), at(2, busy)}, nil, 1},                    // once
		{5, 3, []changelog.Change{at(3, done), at(2, done)}, []model.Revision{2}, 3},    // and again when distributed
		{6, 4, []changelog.Change{at(4, busy)}, []model.Revision{4}, 3},
		{7, 9, []changelog.Change{at(9, done)}, []model.Revision{9}, 9}, // the control plane has forgotten 4
		{8, 1, []changelog.Change{at(1, done)}, []model.Revision{1}, 1}, // the control plane restarted
	} {
		list := debug.ChangeList{Now: noon.Add(time.Duration(poll.seconds) * time.Second), Newest: poll.newest, Changes: poll.changes}
		var got []model.Revision
		for _, c := range cw.next(list) {
			got = append(got, c.Revision)
		}
		require.Equal(t, poll.want, got, "poll %d", i)
		require.Equal(t, poll.after, cw.after(), "poll %d", i)
	}
}

// cancelling ends a context when its output contains a text.
type cancelling struct {
	written strings.Builder
	text    string
	cancel  context.CancelFunc
}

func (c *cancelling) Write(p []byte) (int, error) {
	n, err := c.written.Write(p)
	if strings.Contains(c.written.String(), c.text) {
		c.cancel()
	}
	return n, err
}

func TestWatchUntilInterrupted(t *testing.T) {
	log := changelog.New(8, slog.New(slog.DiscardHandler), changelog.NewMetrics())
	polls := 0
	pages := debug.Handler(debug.Stages{Changes: log}, slog.New(slog.DiscardHandler))
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		polls++ // requests come one after another
		log.Begin(model.Revision(polls), nil, noon)
		log.Published(model.Revision(polls), 0, noon)
		pages.ServeHTTP(w, r)
	}))
	defer srv.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out := &cancelling{text: "\n3 ", cancel: cancel}
	root := clitest.Root(Commands()...)
	root.SetOut(out)
	root.SetArgs([]string{"changes", "--watch", "--address", srv.URL})
	require.Zero(t, terminal.Run(ctx, root))
	rows := strings.Split(strings.TrimSpace(out.written.String()), "\n")
	require.Len(t, rows, 4, out.written.String())
	for i, want := range []string{"REV ", "1 ", "2 ", "3 "} {
		require.True(t, strings.HasPrefix(rows[i], want), out.written.String())
	}
}
