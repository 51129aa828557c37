package dependencies

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/moonsail/moonsail/internal/model"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a memory with a clock that a test sets.
type world struct {
	*Memory
	at time.Time
}

// newWorld returns an empty memory that waits for no store.
func newWorld() *world {
	w := &world{at: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	w.Memory = NewMemory(func() time.Time { return w.at })
	w.setLoaded()
	return w
}

func proxyOf(name string) *model.Proxy {
	return &model.Proxy{Namespace: "shop", ServiceAccount: "web", Name: name + "-1", Metadata: map[string]string{"WORKLOAD_NAME": name}}
}

func (w *world) known(t *testing.T, name string) []string {
	t.Helper()
	k := w.Known(t.Context(), proxyOf(name))
	out := k.Clusters
	for _, h := range k.Hosts {
		out = append(out, string(h))
	}
	slices.Sort(out)
	return out
}

const reviews, ratings = "reviews.shop.svc.cluster.local", "ratings.shop.svc.cluster.local"

func clusterOf(port int, host string) string { return fmt.Sprintf("outbound|%d||%s", port, host) }

// text describes everything that is remembered, with ages in hours.
func (w *world) text() string {
	var b strings.Builder
	for _, r := range w.Records() {
		fmt.Fprintf(&b, "%s/%s/%s:", r.Namespace, r.ServiceAccount, r.Name)
		for _, c := range r.Calls {
			fmt.Fprintf(&b, " %s:%d", c.Host, c.Port)
			if c.Subset != "" {
				b.WriteString("/" + c.Subset)
			}
			fmt.Fprintf(&b, " %.0f-%.0f", w.at.Sub(c.First).Hours(), w.at.Sub(c.Last).Hours())
		}
		b.WriteString("\n")
	}
	return b.String()
}

func TestWorkloadOf(t *testing.T) {
	for name, c := range map[string]struct {
		proxy *model.Proxy
		want  Workload
	}{
		"injected":   {&model.Proxy{Namespace: "a", ServiceAccount: "b", Name: "web-1", Labels: map[string]string{"app": "x"}, Metadata: map[string]string{"WORKLOAD_NAME": "web"}}, Workload{"a", "b", "web"}},
		"by a label": {&model.Proxy{Namespace: "a", Name: "web-1", Labels: map[string]string{"app": "web"}}, Workload{"a", "default", "web"}},
		"only named": {&model.Proxy{Namespace: "a", Name: "web-1"}, Workload{"a", "default", "web-1"}},
		"long":       {&model.Proxy{Namespace: "a", Name: "web-1", Metadata: map[string]string{"WORKLOAD_NAME": strings.Repeat("x", 1000)}}, Workload{"a", "default", "web-1"}},
		"lines":      {&model.Proxy{Namespace: "a", Labels: map[string]string{"app": "web"}, Metadata: map[string]string{"WORKLOAD_NAME": "a\n---\nkind: Secret"}}, Workload{"a", "default", "web"}},
		"none valid": {&model.Proxy{Namespace: "a", Name: "A_1", Labels: map[string]string{"app": "a b"}}, Workload{"a", "default", ""}},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, WorkloadOf(c.proxy)) })
	}
}

func TestLearning(t *testing.T) {
	web := WorkloadOf(proxyOf("web"))
	asked := func(again bool, clusters ...string) func(*world) {
		return func(w *world) { w.Asked(proxyOf("web"), clusters, again) }
	}
	called := func(hosts ...model.Host) func(*world) { return func(w *world) { w.Called(web, hosts) } }
	seen := func(hosts ...model.Host) func(*world) { return func(w *world) { w.Seen(web, hosts) } }
	for name, c := range map[string]struct {
		steps []func(*world) // an hour between two
		want  string
	}{
		"asked twice":                    {[]func(*world){asked(false, clusterOf(80, reviews)), asked(false, clusterOf(80, reviews))}, reviews + ":80 1-0"},
		"asked again after a reconnect":  {[]func(*world){asked(false, clusterOf(80, reviews)), asked(true, clusterOf(80, reviews))}, reviews + ":80 1-1"},
		"listed by another control":      {[]func(*world){asked(true, clusterOf(80, reviews))}, reviews + ":80 0-0"},
		"metrics alone":                  {[]func(*world){called(reviews)}, reviews + ":0 0-0"},
		"metrics renew what was asked":   {[]func(*world){asked(false, clusterOf(80, reviews), clusterOf(81, reviews)), called(reviews)}, reviews + ":80 1-0 " + reviews + ":81 1-0"},
		"old counters renew nothing":     {[]func(*world){asked(false, clusterOf(80, reviews)), seen(reviews, ratings)}, ratings + ":0 0-0 " + reviews + ":80 1-1"},
		"a port replaces an unknown one": {[]func(*world){called(reviews), asked(false, clusterOf(80, reviews))}, reviews + ":80 1-0"},
		"a subset":                       {[]func(*world){asked(false, "outbound|80|v1|"+reviews)}, reviews + ":80/v1 0-0"},
		"a port is known":                {[]func(*world){asked(false, clusterOf(80, reviews)), func(w *world) { w.merge([]Record{{web, []Call{{Target{Host: reviews}, w.at, w.at}}}}) }}, reviews + ":80 1-1"},
		"a stored port":                  {[]func(*world){called(reviews), func(w *world) { w.merge([]Record{{web, []Call{{Target{Host: reviews, Port: 80}, w.at, w.at}}}}) }}, reviews + ":80 1-0"},
		"invalid names":                  {[]func(*world){asked(false, "outbound|80||a\nb", "outbound|80|v 1|"+reviews), called("a b")}, ""},
		"names that are no services":     {[]func(*world){asked(false, "BlackHoleCluster", "inbound|80||", "")}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			for i, step := range c.steps {
				if i > 0 {
					w.at = w.at.Add(time.Hour)
				}
				step(w)
			}
			if c.want != "" {
				c.want = "shop/web/web: " + c.want + "\n"
			}
			require.Equal(t, c.want, w.text())
		})
	}
}

func TestKnown(t *testing.T) {
	w := newWorld()
	w.Asked(proxyOf("web"), []string{clusterOf(80, reviews), "outbound|80|v1|" + reviews}, false)
	w.Called(WorkloadOf(proxyOf("web")), []model.Host{ratings})
	require.Equal(t, []string{"outbound|80|v1|" + reviews, clusterOf(80, reviews), ratings}, w.known(t, "web"))
	require.Empty(t, w.known(t, "api"), "another workload")
	other := proxyOf("web")
	other.ServiceAccount = "api"
	require.Empty(t, w.Known(t.Context(), other), "another service account")

	w.at = w.at.Add(Keep - time.Hour)
	w.Called(WorkloadOf(proxyOf("web")), []model.Host{ratings})
	w.at = w.at.Add(2 * time.Hour)
	require.Equal(t, []string{ratings}, w.known(t, "web"), "the others were not called for long")
	require.Equal(t, "shop/web/web: "+ratings+":0 721-2\n", w.text())
}

func TestBounds(t *testing.T) {
	t.Run("calls of a workload", func(t *testing.T) {
		w := newWorld()
		for i := range maxCalls + 10 {
			w.at = w.at.Add(time.Second)
			w.Asked(proxyOf("web"), []string{clusterOf(i, reviews)}, false)
		}
		known := w.known(t, "web")
		require.Len(t, known, maxCalls)
		require.NotContains(t, known, clusterOf(9, reviews))
		require.Contains(t, known, clusterOf(10, reviews))
	})
	t.Run("one request", func(t *testing.T) {
		w := newWorld()
		w.Asked(proxyOf("web"), []string{clusterOf(1000, ratings)}, false)
		w.at = w.at.Add(time.Second)
		var clusters []string
		for i := range maxCalls * 40 {
			clusters = append(clusters, clusterOf(i+1, reviews))
		}
		w.Asked(proxyOf("web"), clusters, false)
		known := w.known(t, "web")
		require.Len(t, known, maxCalls)
		require.Contains(t, known, clusters[0], "it has the first ones")
		require.Contains(t, known, clusters[maxCalls-1])
		require.NotContains(t, known, clusterOf(1000, ratings), "they are newer")
	})
	t.Run("one service account", func(t *testing.T) {
		w := newWorld()
		quiet := func(namespace string) *model.Proxy {
			return &model.Proxy{Namespace: namespace, ServiceAccount: "quiet", Name: "quiet"}
		}
		w.Asked(quiet("shop"), []string{clusterOf(80, reviews)}, false)
		w.Asked(quiet("billing"), []string{clusterOf(80, reviews)}, false)
		var clusters []string
		for i := range maxCalls {
			clusters = append(clusters, clusterOf(i+1, reviews))
		}
		for i := range 2 * maxTotal / maxCalls {
			w.at = w.at.Add(time.Second)
			p := proxyOf(fmt.Sprint("web", i%maxWorkloads))
			p.ServiceAccount = fmt.Sprint("sa", i/maxWorkloads)
			w.Asked(p, clusters, false)
		}
		require.LessOrEqual(t, w.total, maxTotal)
		for _, ns := range []string{"shop", "billing"} {
			require.NotEmpty(t, w.Known(t.Context(), quiet(ns)).Clusters, "they are the oldest, and few")
		}
	})
	t.Run("workloads of a service account", func(t *testing.T) {
		w := newWorld()
		for i := range maxWorkloads + 3 {
			w.at = w.at.Add(time.Second)
			w.Asked(proxyOf(fmt.Sprint("web", i)), []string{clusterOf(80, reviews)}, false)
		}
		require.Len(t, w.Records(), maxWorkloads)
		require.Empty(t, w.known(t, "web2"))
		require.NotEmpty(t, w.known(t, "web3"))
	})
	t.Run("all", func(t *testing.T) {
		w := newWorld()
		for i := range maxTotal/100 + 10 {
			w.at = w.at.Add(time.Second)
			p := proxyOf("web")
			p.ServiceAccount = fmt.Sprint("sa", i)
			var clusters []string
			for port := range 100 {
				clusters = append(clusters, clusterOf(port, reviews))
			}
			w.Asked(p, clusters, false)
		}
		n := 0
		for _, r := range w.Records() {
			n += len(r.Calls)
		}
		require.LessOrEqual(t, n, maxTotal)
		require.GreaterOrEqual(t, n, maxTotal*9/10-100)
		require.Equal(t, n, w.total)
	})
}

func TestCuts(t *testing.T) {
	for name, c := range map[string]struct {
		counts [3]int // of a, b and c, which are added in this order
		n      int
		want   map[string]int
	}{
		"the largest":       {[3]int{1, 9, 2}, 7, map[string]int{"a": 0, "b": 7, "c": 0}},
		"the two largest":   {[3]int{1, 9, 3}, 8, map[string]int{"a": 0, "b": 7, "c": 1}},
		"one more":          {[3]int{4, 9, 4}, 6, map[string]int{"a": 1, "b": 5, "c": 0}},
		"all have the same": {[3]int{1, 1, 1}, 2, map[string]int{"a": 1, "b": 1, "c": 0}},
		"everything":        {[3]int{1, 2, 3}, 6, map[string]int{"a": 1, "b": 2, "c": 3}},
	} {
		t.Run(name, func(t *testing.T) {
			all := newTally[string]()
			for i, n := range c.counts {
				for range n {
					all.add(string(rune('a' + i)))
				}
			}
			got := all.cuts(c.n)
			require.Equal(t, c.want, got)
		})
	}
}
