package inspect

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/config"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/controlplane/debug"
	"github.com/moonsail/moonsail/internal/diagnose/explain"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/changelog"
	"github.com/moonsail/moonsail/internal/pipeline/store"
	"github.com/moonsail/moonsail/internal/source/file"
	"github.com/moonsail/moonsail/internal/terminal"
	"github.com/moonsail/moonsail/internal/xds/distribution"
)

// shop is a control plane with a real store and change log. The test sets the state of its proxies.
type shop struct {
	distribution.Proxies // not called by the tests

	t     *testing.T
	url   string
	store *store.Store
	log   *changelog.Log

	mu       sync.Mutex // guards the fields below
	places   []distribution.ProxySyncStatus
	problems problem.List
}

func newShop(t *testing.T) *shop {
	t.Helper()
	s := &shop{t: t, store: store.New(), log: changelog.New(8, slog.New(slog.DiscardHandler), changelog.NewMetrics())}
	stages := debug.Stages{ConfigDir: "/mesh", Snapshot: s.store.Snapshot, Changes: s.log, Explain: &explain.Explainer{Snapshot: s.store.Snapshot, Changes: s.log, Proxies: s, Problems: s.problemsOf}}
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

func (s *shop) Refusals() []*distribution.Refusal { return nil }

func (s *shop) Disconnected() []distribution.Disconnected { return nil }

func (s *shop) place(list ...distribution.ProxySyncStatus) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.places = list
}

func (s *shop) problemsOf(key model.Key) problem.List {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.problems), func(p problem.Problem) bool { return p.Object != key })
}

// refuse sets the problems of a file, which keep the last valid versions of its objects in force.
func (s *shop) refuse(path string) {
	s.t.Helper()
	tree, err := file.Analyze(path, config.Decoder{})
	require.NoError(s.t, err)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.problems = tree.Problems
}

// apply takes the objects of a file through the stages, observed at noon.
func (s *shop) apply(path string) {
	s.t.Helper()
	tree, err := file.Analyze(path, config.Decoder{})
	require.NoError(s.t, err)
	var events []store.Event
	for _, o := range tree.Objects {
		events = append(events, store.Event{Key: o.Metadata().Key, Object: o, Observed: noon, Committed: noon.Add(-time.Millisecond)})
	}
	snap, changes := s.store.Apply(events)
	s.publish(snap, changes)
}

// remove takes the deletion of an object through the stages.
func (s *shop) remove(key model.Key) {
	s.publish(s.store.Apply([]store.Event{{Key: key, Observed: noon}}))
}

func (s *shop) publish(snap *store.Snapshot, changes []store.Change) {
	var objects []changelog.ChangedObject
	for _, c := range changes {
		o := changelog.ChangedObject{Key: c.Key, Operation: changelog.Deleted, Observed: noon, Committed: noon.Add(-time.Millisecond)}
		if c.New != nil {
			o.Operation, o.ResourceVersion = changelog.Updated, c.New.Metadata().ResourceVersion
		}
		objects = append(objects, o)
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

// lately returns a time so long ago that its age is printed in whole seconds.
func lately() time.Time { return time.Now().Add(-150 * time.Second) }

func TestExplain(t *testing.T) {
	s := newShop(t)
	s.apply(write(t, reviewsYAML))
	s.place(where("web-1", distribution.StateACKed), where("web-2", distribution.StateNotConcerned),
		where("stopped", distribution.StateBehind, distribution.Reason{Cause: distribution.CauseUnanswered, Type: "RDS", Since: lately()}),
		where("looking", distribution.StateBehind, distribution.Reason{Cause: distribution.CauseUnanswered, Type: "CDS", Names: []string{"outbound|80||a"}}),
		where("slow", distribution.StateBehind, distribution.Reason{Cause: distribution.CauseWaits, Type: "LDS", Names: []string{"outbound|80||a"}}),
		where("old", distribution.StateRefused, distribution.Reason{Cause: distribution.CauseRefused, Type: "LDS", Names: []string{"l1"}, Text: "no such extension"}),
		where("cut-off", distribution.StateDisconnected, distribution.Reason{Cause: distribution.CauseDisconnected, Since: lately()}))
	status, out, errOut := moonsail(t, "explain", "vs/reviews", "-n", "shop", "--address", s.url)
	require.Zero(t, status, errOut)
	head, rest, _ := strings.Cut(out, "\n")
	require.Regexp(t, `^VirtualService/shop/reviews  updated, in .*reviews.yaml:1, version [0-9a-f]+$`, head)
	_, rest, _ = strings.Cut(rest, "ago\n\n")
	require.Regexp(t, strings.NewReplacer("(", `\(`, ")", `\)`, "+", `\+`, "|", `\|`, "2m30s", "2m3[0-9]s").Replace(
		`^  watch        1.0 ms  ████                                      from the API server's commit, known to the second, until observed
  store        1.0 ms      ████                                  queued and stored
  derive       1.0 ms          ████                              dependent configuration derived
  translate    1.0 ms              ████                          Envoy resources encoded
  send         0.0 ms                  ·                         first response sent
  ack          6.0 ms                  ████████████████████████  last proxy answered
  total       10.0 ms  0 resources changed, 0 bytes

distributed to 1 of 5 proxies (20 %); 1 refused it, 3 behind, 1 disconnected without it, 1 not concerned

PROXY         STATE         WHY
old.shop      refused       refused LDS l1: no such extension
looking.shop  behind        has not answered CDS: it may be waiting for DNS, for the addresses of outbound|80||a
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
	require.Contains(t, errOut, "exists in several namespaces (other, shop): choose one with --namespace")
	for _, ns := range []string{"shop", "other"} {
		s.remove(model.Key{Kind: model.KindVirtualService, Namespace: ns, Name: "reviews"})
	}
	_, _, errOut = moonsail(t, "explain", "vs/reviews", "--address", s.url)
	require.Contains(t, errOut, "VirtualService reviews: was deleted in several namespaces (other, shop): choose one with --namespace")
	status, _, errOut = moonsail(t, "explain", "vs/nothing", "--address", s.url)
	require.Equal(t, terminal.ExitFailed, status)
	require.Contains(t, errOut, "error: VirtualService nothing: not found in any namespace\n")
	require.Contains(t, errOut, "next:")
	status, _, errOut = moonsail(t, "explain", "workloadgroup/x", "--address", s.url)
	require.Equal(t, terminal.ExitUsage, status)
	require.Contains(t, errOut, "unknown kind")
}

// TestExplainADeletedObject checks that an object that was deleted lately is found by its name alone, and that the first line has
// when, and whether all proxies have ACKed the removal.
func TestExplainADeletedObject(t *testing.T) {
	s := newShop(t)
	s.apply(write(t, reviewsYAML))
	s.remove(model.Key{Kind: model.KindVirtualService, Namespace: "shop", Name: "reviews"})
	behind := where("web-2", distribution.StateBehind, distribution.Reason{Cause: distribution.CauseUnanswered, Type: "RDS", Since: lately()})
	gone := where("web-3", distribution.StateDisconnected)
	for want, places := range map[string][]distribution.ProxySyncStatus{
		`every proxy that needs it \(1\) has ACKed the removal`: {where("web-1", distribution.StateACKed)},
		`1 of 2 proxies have not ACKed the removal`:             {where("web-1", distribution.StateACKed), behind},
		`no connected proxy is concerned; 1 disconnected`:       {gone},
	} {
		s.place(places...)
		for _, args := range [][]string{{"vs/reviews"}, {"vs/reviews.shop"}, {"vs/reviews", "-n", "shop"}} {
			status, out, errOut := moonsail(t, append([]string{"explain", "--address", s.url}, args...)...)
			require.Zero(t, status, errOut)
			require.Regexp(t, `^VirtualService/shop/reviews  deleted \S+ ago, at 12:00:00: `+want, out)
		}
	}
	s.apply(write(t, strings.ReplaceAll(reviewsYAML, "namespace: shop", "namespace: other")))
	_, out, _ := moonsail(t, "explain", "vs/reviews", "--address", s.url)
	require.Contains(t, out, "VirtualService/other/reviews  updated", "an object that exists precedes")
	status, _, errOut := moonsail(t, "explain", "vs/revews", "--address", s.url)
	require.Equal(t, terminal.ExitFailed, status)
	require.Contains(t, errOut, `VirtualService revews: not found in any namespace; did you mean "reviews"?`)
}

// TestFormsOfObjects checks the forms of arguments that name an object.
func TestFormsOfObjects(t *testing.T) {
	s := newShop(t)
	s.apply(write(t, reviewsYAML+"---\n"+strings.ReplaceAll(reviewsYAML, "name: reviews", "name: ratings")+
		"---\n"+strings.ReplaceAll(reviewsYAML, "name: reviews, namespace: shop", "name: ratings.shop, namespace: bank")))
	for args, want := range map[string]string{
		"vs/reviews.shop":         "VirtualService/shop/reviews",
		"vs reviews":              "VirtualService/shop/reviews",
		"virtualservices reviews": "VirtualService/shop/reviews",
		"vs reviews.shop":         "VirtualService/shop/reviews",
		"vs reviews -n shop":      "VirtualService/shop/reviews",
		"vs/ratings":              "VirtualService/shop/ratings",
		"vs/ratings.shop":         "VirtualService/bank/ratings.shop", // an object of the whole name precedes
	} {
		t.Run(args, func(t *testing.T) {
			status, out, errOut := moonsail(t, append([]string{"explain", "--address", s.url}, strings.Fields(args)...)...)
			require.Zero(t, status, errOut)
			require.Contains(t, out, want+"  updated")
			status, out, errOut = moonsail(t, append([]string{"wait", "--timeout", "1m", "--address", s.url}, strings.Fields(args)...)...)
			require.Zero(t, status, out+errOut)
			require.Contains(t, out, want+": ")
		})
	}
	for args, want := range map[string]string{
		"vs/reviews.bank": "VirtualService reviews.bank: not found in any namespace",
		"vs/a vs/b":       `"vs/a" and "vs/b": more than one object`,
		"vz reviews":      `"vz": unknown kind; did you mean "vs"?`,
	} {
		t.Run(args, func(t *testing.T) {
			status, _, errOut := moonsail(t, append([]string{"explain", "--address", s.url}, strings.Fields(args)...)...)
			require.NotZero(t, status)
			require.Contains(t, errOut, want)
		})
	}
	_, out, _ := moonsail(t, "__complete", "explain", "--address", s.url, "vs", "rev")
	require.Contains(t, out, "reviews\n")
}

func TestCompletion(t *testing.T) {
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
		{"d", "destinationrule/\n:"}, // not kinds that the control plane makes
	} {
		_, out, _ := moonsail(t, "__complete", "explain", "--address", s.url, tc.typed)
		require.True(t, strings.HasPrefix(out, tc.want), "%s: %s", tc.typed, out)
	}
	_, out, _ := moonsail(t, "__complete", "explain", "--address", "127.0.0.1:1", "vs/")
	require.True(t, strings.HasPrefix(out, ":4\n"), "without a control plane, nothing is offered: %s", out)
}

// TestRefusalsTogether checks that refused resources with the same message share a text, and that the texts are bounded.
func TestRefusalsTogether(t *testing.T) {
	root := &cobra.Command{Use: "moonsail"}
	root.AddCommand(Commands()...)
	cmd, _, err := root.Find([]string{"explain"})
	require.NoError(t, err)
	require.NoError(t, cmd.Flags().Set("address", "h:1"))
	p := &distribution.ProxySyncStatus{Name: "web-1", Namespace: "shop", Reasons: []distribution.Reason{{Cause: distribution.CauseUnsent, Type: "EDS"}}}
	for _, name := range []string{"a", "b", "c", "d"} {
		p.Reasons = append(p.Reasons, distribution.Reason{Cause: distribution.CauseRefused, Type: "CDS", Names: []string{name}, Text: "no"})
	}
	for i := range 5 {
		p.Reasons = append(p.Reasons, distribution.Reason{Cause: distribution.CauseRefused, Type: "LDS", Names: []string{"l"}, Text: fmt.Sprint("never ", i)})
	}
	require.Equal(t, []string{
		"EDS is about to be sent", "refused CDS a, b and 2 more: no", "refused LDS l: never 0", "refused LDS l: never 1", "refused LDS l: never 2",
		"and 2 more reasons: see 'moonsail proxies web-1.shop --address h:1'",
	}, reasonTexts(cmd, p, noon))
	p.Name = "web-$(id)"
	require.Contains(t, reasonTexts(cmd, p, noon), "and 2 more reasons: see 'moonsail proxies PROXY --address h:1'")
	require.Equal(t, []string{""}, reasonTexts(cmd, &distribution.ProxySyncStatus{}, noon))
}

// TestExplainNamesRefusals checks that the first line says that proxies refuse an object.
func TestExplainNamesRefusals(t *testing.T) {
	filter := model.Key{Kind: model.KindEnvoyFilter, Namespace: "shop", Name: "region"}
	for want, sure := range map[string]bool{
		"EnvoyFilter/shop/region  updated, in f.yaml:3; refused by 2 proxies\n":                          true,
		"EnvoyFilter/shop/region  updated, in f.yaml:3; 2 proxies may refuse a resource because of it\n": false,
	} {
		var b strings.Builder
		require.NoError(t, printExplanation(newExplainCommand(), &b, &explain.Explanation{
			Object: filter, Exists: true, Operation: changelog.Updated, Origin: "f.yaml:3",
			Refusals: []explain.ObjectRefusal{{Type: "LDS", Proxies: 2, Blame: distribution.Blame{Sure: sure}}},
		}))
		require.True(t, strings.HasPrefix(b.String(), want), b.String())
	}
}
