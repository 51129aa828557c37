package cli

import (
	"encoding/json"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/config"
	"github.com/moonsail/moonsail/internal/controlplane/debug"
	"github.com/moonsail/moonsail/internal/diagnose/explain"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/changelog"
	"github.com/moonsail/moonsail/internal/pipeline/store"
	"github.com/moonsail/moonsail/internal/source/file"
	"github.com/moonsail/moonsail/internal/terminal"
	"github.com/moonsail/moonsail/internal/xds/distribution"
	"github.com/moonsail/moonsail/test/await"
)

// shop is a control plane with real stages up to the streams, and proxies where the test
// puts them.
type shop struct {
	distribution.Proxies // what the test does not ask about

	t     *testing.T
	url   string
	store *store.Store
	log   *changelog.Log

	mu     sync.Mutex // guards places
	places []distribution.ProxySyncStatus
}

func newShop(t *testing.T) *shop {
	t.Helper()
	s := &shop{t: t, store: store.New(), log: changelog.New(8, slog.New(slog.DiscardHandler), changelog.NewMetrics())}
	stages := debug.Stages{Snapshot: s.store.Snapshot, Explain: &explain.Explainer{Snapshot: s.store.Snapshot, Changes: s.log, Proxies: s}}
	srv := httptest.NewServer(debug.Handler(stages, slog.New(slog.DiscardHandler)))
	t.Cleanup(srv.Close)
	s.url = srv.URL
	return s
}

func (s *shop) Distribution(*distribution.Query) []distribution.ProxySyncStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.places
}

func (s *shop) Disconnected() []distribution.Disconnected { return nil }

func (s *shop) place(list ...distribution.ProxySyncStatus) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.places = list
}

// apply takes what a file says through the stages, observed at noon.
func (s *shop) apply(path string) {
	s.t.Helper()
	tree, err := file.Analyze(path, config.Decoder{})
	require.NoError(s.t, err)
	var events []store.Event
	for _, o := range tree.Objects {
		events = append(events, store.Event{Key: o.Metadata().Key, Object: o, Observed: noon, Committed: noon.Add(-time.Millisecond)})
	}
	snap, changes := s.store.Apply(events)
	var objects []changelog.ChangedObject
	for _, c := range changes {
		objects = append(objects, changelog.ChangedObject{Key: c.Key, Operation: changelog.Updated, Observed: noon,
			ResourceVersion: c.New.Metadata().ResourceVersion, Committed: noon.Add(-time.Millisecond)})
	}
	rev := snap.Revision
	s.log.Begin(rev, objects, noon)
	s.log.Mark(rev, changelog.StageStore, noon.Add(time.Millisecond))
	s.log.Mark(rev, changelog.StageDerive, noon.Add(2*time.Millisecond))
	s.log.Mark(rev, changelog.StageTranslate, noon.Add(3*time.Millisecond))
	s.log.Published(rev, 1, noon.Add(3*time.Millisecond))
	s.log.Sent(rev, noon.Add(3*time.Millisecond))
	s.log.Settled(rev-1, rev, distribution.ACKed, noon.Add(9*time.Millisecond))
}

const reviewsYAML = `apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: reviews, namespace: shop}
spec:
  hosts: [reviews]
  http: [{route: [{destination: {host: reviews}}]}]
`

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "reviews.yaml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func where(name string, p distribution.SyncState, reasons ...distribution.Reason) distribution.ProxySyncStatus {
	return distribution.ProxySyncStatus{ID: name, Name: name, Namespace: "shop", Position: p, Reasons: reasons}
}

// lately is a moment that is so long ago that its age is told in whole seconds.
func lately() time.Time { return time.Now().Add(-150 * time.Second) }

func TestExplain(t *testing.T) {
	s := newShop(t)
	s.apply(write(t, reviewsYAML))
	s.place(where("web-1", distribution.StateACKed), where("web-2", distribution.StateNotConcerned),
		where("stopped", distribution.StateBehind, distribution.Reason{Cause: distribution.CauseUnanswered, Type: "RDS", Since: lately()}),
		where("slow", distribution.StateBehind, distribution.Reason{Cause: distribution.CauseWaits, Type: "LDS", Names: []string{"outbound|80||a"}}),
		where("old", distribution.StateRefused, distribution.Reason{Cause: distribution.CauseRefused, Type: "LDS", Names: []string{"l1"}, Text: "no such extension"}),
		where("cut-off", distribution.StateDisconnected, distribution.Reason{Cause: distribution.CauseDisconnected, Since: lately()}))
	status, out, errOut := moonsail(t, "explain", "vs/reviews", "-n", "shop", "--address", s.url)
	require.Zero(t, status, errOut)
	head, rest, _ := strings.Cut(out, "\n")
	require.Regexp(t, `^VirtualService/shop/reviews  updated, in .*reviews.yaml:1, version [0-9a-f]+$`, head)
	_, rest, _ = strings.Cut(rest, "ago\n\n")
	require.Regexp(t, strings.NewReplacer("(", `\(`, ")", `\)`, "+", `\+`, "|", `\|`, "2m30s", "2m3[0-9]s").Replace(
		`^  watch        1.0 ms  ████                                      from the API server's commit, which it tells to the second, until it was observed
  store        1.0 ms      ████                                  waiting, and into the store
  derive       1.0 ms          ████                              what depends on it derived
  translate    1.0 ms              ████                          resources translated, encoded, in their tables
  send         0.0 ms                  ·                         first response on its way
  ack          6.0 ms                  ████████████████████████  last proxy's answer
  total       10.0 ms  0 resources differ, 0 bytes

distributed to 1 of 4 proxies (25 %); 1 refused it, 2 behind, 1 disconnected without it, 1 not concerned

PROXY         STATE         WHY
old.shop      refused       refused LDS l1: no such extension
slow.shop     behind        LDS waits for endpoints of outbound|80||a
stopped.shop  behind        has not answered RDS for 2m30s
cut-off.shop  disconnected  disconnected for 2m30s
$`), rest)
}

func TestExplainFindsTheNamespace(t *testing.T) {
	s := newShop(t)
	s.apply(write(t, reviewsYAML))
	status, out, _ := moonsail(t, "explain", "VirtualServices/reviews", "-o", "json", "--address", s.url)
	require.Zero(t, status)
	var e explain.Explanation
	require.NoError(t, json.Unmarshal([]byte(out), &e))
	require.Equal(t, model.Key{Kind: model.KindVirtualService, Namespace: "shop", Name: "reviews"}, e.Object)
	require.Equal(t, changelog.Distributed, e.State)

	s.apply(write(t, strings.ReplaceAll(reviewsYAML, "namespace: shop", "namespace: other")))
	status, _, errOut := moonsail(t, "explain", "vs/reviews", "--address", s.url)
	require.Equal(t, terminal.ExitUsage, status)
	require.Contains(t, errOut, "in each of other, shop: say which with --namespace")
	status, _, errOut = moonsail(t, "explain", "vs/nothing", "--address", s.url)
	require.Equal(t, terminal.ExitFailed, status)
	require.Contains(t, errOut, "there is no VirtualService/default/nothing")
	require.Contains(t, errOut, "next:")
	status, _, errOut = moonsail(t, "explain", "workloadgroup/x", "--address", s.url)
	require.Equal(t, terminal.ExitUsage, status)
	require.Contains(t, errOut, "is not a kind that the mesh reads")
}

func TestCompletionAsksTheControlPlane(t *testing.T) {
	s := newShop(t)
	s.apply(write(t, reviewsYAML))
	for _, tc := range []struct {
		typed string
		want  string
	}{
		{"virt", "virtualservice/\n"},
		{"virtualservice/", "virtualservice/reviews\n"},
		{"vs/", "vs/reviews\n"},
		{"dr/", ":4\n"},
		{"d", "destinationrule/\n:"}, // departures, which the control plane makes, are not offered
	} {
		_, out, _ := moonsail(t, "__complete", "explain", "--address", s.url, tc.typed)
		require.True(t, strings.HasPrefix(out, tc.want), "%s: %s", tc.typed, out)
	}
	_, out, _ := moonsail(t, "__complete", "explain", "--address", "127.0.0.1:1", "vs/")
	require.True(t, strings.HasPrefix(out, ":4\n"), "nobody answers: nothing is offered, %s", out)
}

// waitAnswered is "moonsail wait" for hardly longer than the control plane needs for an answer.
func waitAnswered(t *testing.T, args ...string) (status int, out, errOut string) {
	t.Helper()
	for timeout := 30 * time.Millisecond; timeout < time.Minute; timeout *= 2 {
		status, out, errOut = moonsail(t, append([]string{"wait", "--timeout", timeout.String()}, args...)...)
		if !strings.Contains(out, "the control plane did not answer in that time") {
			break
		}
	}
	return status, out, errOut
}

func TestWaitForAFile(t *testing.T) {
	s := newShop(t)
	path := write(t, reviewsYAML)
	s.apply(write(t, strings.ReplaceAll(reviewsYAML, "hosts: [reviews]", "hosts: [ratings]")))
	s.place(where("web-1", distribution.StateACKed))

	status, out, _ := waitAnswered(t, path, "--address", s.url)
	require.Equal(t, int(exitTimeout), status, "the older form is in force")
	require.Contains(t, out, "not reached within")
	require.Contains(t, out, "the control plane has another version of it")

	// As in kubectl, a namespace may be said beside the file.
	nameless := write(t, strings.ReplaceAll(reviewsYAML, ", namespace: shop", ""))
	_, out, _ = waitAnswered(t, nameless, "-n", "shop", "--address", s.url)
	require.Contains(t, out, "VirtualService/shop/reviews: ")

	applied := make(chan struct{})
	go func() { defer close(applied); s.apply(path) }() // meanwhile somebody waits
	status, out, errOut := moonsail(t, "wait", path, "--timeout", "1m", "--address", s.url)
	await.From(t, applied)
	require.Zero(t, status, out+errOut)
	require.Contains(t, out, "reached after")
	require.Contains(t, out, "VirtualService/shop/reviews: distributed to 1 of 1 proxies (100 %)")
}

func TestWaitSaysWhoIsBehind(t *testing.T) {
	s := newShop(t)
	path := write(t, reviewsYAML)
	s.apply(path)
	s.place(where("web-1", distribution.StateACKed), where("web-2", distribution.StateACKed), where("web-3", distribution.StateACKed),
		where("stopped", distribution.StateBehind, distribution.Reason{Cause: distribution.CauseUnanswered, Type: "RDS", Since: lately()}))
	status, out, _ := waitAnswered(t, path, "--address", s.url)
	require.Equal(t, int(exitTimeout), status)
	require.Contains(t, out, "distributed to 3 of 4 proxies (75 %); 1 behind\n")
	require.Regexp(t, `  stopped.shop: has not answered RDS for 2m3\ds\n`, out)
	status, _, _ = moonsail(t, "wait", path, "--for", "distribution=75%", "--timeout", "1m", "--address", s.url)
	require.Zero(t, status)

	s.place(where("web-1", distribution.StateACKed),
		where("old", distribution.StateRefused, distribution.Reason{Cause: distribution.CauseRefused, Type: "RDS", Names: []string{"80"}, Text: "Envoy's words"}))
	status, out, _ = moonsail(t, "wait", "vs/reviews", "--timeout", "1m", "--address", s.url)
	require.Equal(t, int(exitRefused), status, "at once")
	require.Contains(t, out, "  old.shop: refused RDS 80: Envoy's words\n")
	status, out, _ = moonsail(t, "wait", "vs/reviews", "--refused-too", "-o", "json", "--timeout", "1m", "--address", s.url)
	require.Zero(t, status)
	require.Contains(t, out, `"reached": true`)
}

// TestWaitTellsOfAll: of what is refused, and of the rest.
func TestWaitTellsOfAll(t *testing.T) {
	s := newShop(t)
	path := write(t, reviewsYAML+"\n---\n"+strings.ReplaceAll(reviewsYAML, "name: reviews", "name: later"))
	s.apply(path)
	s.place(where("old", distribution.StateRefused, distribution.Reason{Cause: distribution.CauseRefused, Type: "RDS", Names: []string{"80"}, Text: "Envoy's words"}))
	status, out, _ := moonsail(t, "wait", path, "--timeout", "1m", "--address", s.url)
	require.Equal(t, int(exitRefused), status)
	require.Equal(t, 2, strings.Count(out, "  old.shop: refused RDS 80: Envoy's words\n"), out)
}

func TestWaitForAVersion(t *testing.T) {
	s := newShop(t)
	s.apply(write(t, reviewsYAML))
	status, out, _ := waitAnswered(t, "vs/reviews", "-n", "shop", "--resource-version", "81", "--address", s.url)
	require.Equal(t, int(exitTimeout), status)
	require.Contains(t, out, "another version")
	status, _, _ = waitAnswered(t, "vs/coming", "-n", "shop", "--resource-version", "1", "--address", s.url)
	require.Equal(t, int(exitTimeout), status, "it may still come")
}

func TestWaitForNothing(t *testing.T) {
	s := newShop(t)
	for name, tc := range map[string]struct {
		args   []string
		status int
		says   string
	}{
		"no such object":   {[]string{"vs/nothing"}, terminal.ExitFailed, "there is no VirtualService/default/nothing"},
		"no such file":     {[]string{"nothing.yaml"}, terminal.ExitFailed, "cannot read it"},
		"broken file":      {[]string{write(t, strings.ReplaceAll(reviewsYAML, "hosts:", "host:"))}, terminal.ExitFailed, "moonsail analyze"},
		"nothing in it":    {[]string{write(t, "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\n")}, terminal.ExitFailed, "no object that the mesh reads"},
		"nonsense":         {[]string{"vs/a", "--for", "distribution=200%"}, terminal.ExitUsage, "the form is distribution=P%"},
		"file and flag":    {[]string{write(t, reviewsYAML), "--resource-version", "7"}, terminal.ExitUsage, "goes with KIND/NAME"},
		"nobody answers":   {[]string{"vs/a", "-n", "b", "--address", "127.0.0.1:1"}, terminal.ExitFailed, "no control plane answers"},
		"nobody answers 2": {[]string{write(t, reviewsYAML), "--address", "127.0.0.1:1"}, terminal.ExitFailed, "no control plane answers"},
	} {
		t.Run(name, func(t *testing.T) {
			status, out, errOut := moonsail(t, append([]string{"wait", "--address", s.url}, tc.args...)...)
			require.Equal(t, tc.status, status, out+errOut)
			require.Contains(t, errOut, tc.says)
		})
	}
}
