package doctor_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/diagnose/doctor"
	"github.com/moonsail/moonsail/internal/diagnose/explain"
)

var clock = time.Unix(1_000_000, 0)

func ago(d time.Duration) time.Time { return clock.Add(-d) }

// TestConnectedProxies checks that findings are about what proxies refuse and lack now, and name them.
func TestConnectedProxies(t *testing.T) {
	const rejects = "# TYPE pilot_total_xds_rejects counter\npilot_total_xds_rejects{type=\"cds\"} 3\n"
	refusing := doctor.ConnectedProxy{Name: "web-1.shop", Types: []doctor.ConnectedType{{Type: "CDS", Refused: []doctor.RefusedResource{
		{Name: "a", Message: "no", Since: ago(time.Minute), By: "by EnvoyFilter shop/region, f.yaml:3"}, {Name: "b", Message: "no", Since: ago(2 * time.Minute)},
	}}}}
	late := func(name string, since time.Time) doctor.ConnectedProxy {
		return doctor.ConnectedProxy{Name: name + ".shop", Behind: true, BehindSince: since, Unread: true, Types: []doctor.ConnectedType{
			{Type: "EDS", UnansweredSince: ago(11 * time.Second)}, {Type: "LDS", Waits: "CDS"},
		}}
	}
	unread := "EDS is not answered for 11s; LDS waits for CDS; it does not read its stream"
	holder := explain.StaleHolder{ID: "x", Name: "web-1", Namespace: "shop", Address: "10.0.0.1:80", Cluster: "c", Since: ago(12 * time.Second)}
	for _, c := range []struct {
		name, text string
		connected  doctor.Connected
		check      string
		severity   doctor.Severity // empty: the check is well
		evidence   []string
	}{
		{
			"refuses now", rejects, doctor.Connected{Proxies: []doctor.ConnectedProxy{refusing}}, "rejects", doctor.Critical,
			[]string{"web-1.shop: CDS for 2m0s, a and 1 more: no, by EnvoyFilter shop/region, f.yaml:3", `pilot_total_xds_rejects{type="cds"} 3`, "since it started"},
		},
		{
			"refused earlier", rejects, doctor.Connected{Proxies: []doctor.ConnectedProxy{{}}}, "rejects", doctor.Past,
			[]string{`pilot_total_xds_rejects{type="cds"} 3`, "since it started"},
		},
		{"refused never", "", doctor.Connected{Proxies: []doctor.ConnectedProxy{{}}}, "rejects", "", nil},
		{
			"behind", "", doctor.Connected{Proxies: []doctor.ConnectedProxy{{}, late("web-1", ago(12*time.Second))}}, "behind", doctor.Critical,
			[]string{"web-1.shop: behind for 12s; " + unread},
		},
		{
			"behind for longer than is known", "", doctor.Connected{Proxies: []doctor.ConnectedProxy{late("web-1", time.Time{})}}, "behind", doctor.Critical,
			[]string{"web-1.shop: behind for longer than the control plane remembers; " + unread},
		},
		{"behind for a moment", "", doctor.Connected{Proxies: []doctor.ConnectedProxy{late("web-1", ago(time.Second/2))}}, "behind", "", nil},
		{
			"many, the longest first", "", doctor.Connected{Proxies: []doctor.ConnectedProxy{
				late("a", ago(2*time.Second)), late("b", ago(3*time.Second)), late("c", ago(4*time.Second)), late("d", ago(5*time.Second)), late("e", ago(6*time.Second)),
			}}, "behind", doctor.Critical,
			[]string{"e.shop: behind for 6s; " + unread, "d.shop: behind for 5s; " + unread, "c.shop: behind for 4s; " + unread, "and 2 more proxies"},
		},
		{
			"removed endpoints", "# TYPE moonsail_stale_proxies gauge\nmoonsail_stale_proxies 0\n",
			doctor.Connected{Stale: &explain.Stale{Now: clock, Holders: []explain.StaleHolder{holder, holder}}}, "stale-endpoints", doctor.Critical,
			[]string{"web-1.shop: 10.0.0.1:80 of c, gone for 12s"},
		},
		{
			"endpoints removed a moment ago", "", doctor.Connected{Stale: &explain.Stale{Now: ago(12 * time.Second), Holders: []explain.StaleHolder{holder}}},
			"stale-endpoints", "", nil,
		},
		{
			"not translated", "# TYPE pilot_total_xds_internal_errors counter\npilot_total_xds_internal_errors 9\n",
			doctor.Connected{Untranslated: []doctor.UntranslatedResource{{Group: "web", Type: "LDS", Name: "0.0.0.0_80", Error: "bad"}, {}, {}, {}, {}}},
			"translation", doctor.Warning, []string{"LDS 0.0.0.0_80 of web: bad", "  of : ", "  of : ", "and 2 more"},
		},
		{
			"not translated earlier", "# TYPE pilot_total_xds_internal_errors counter\npilot_total_xds_internal_errors 9\n",
			doctor.Connected{}, "translation", "", nil,
		},
		{
			"pushes do not fail", "# TYPE pilot_total_xds_internal_errors counter\npilot_total_xds_internal_errors 9\n",
			doctor.Connected{}, "send-errors", "", nil,
		},
		{
			"calls that fail, the most frequent first", "", doctor.Connected{Calls: []doctor.Call{
				call("few", 19, 19), call("some", 20, 10), call("most", 100, 52), call("well", 1000, 50), call("more", 100, 30), call("seldom", 100, 6),
			}},
			"failing-calls", doctor.Critical, []string{
				"most.shop -> reviews.shop: 52 % of 100 requests in 60 s failed: 502 (1)", "more.shop -> reviews.shop: 30 % of 100 requests in 60 s failed: 502 (1)",
				"some.shop -> reviews.shop: 50 % of 20 requests in 60 s failed: 502 (1)", "and 1 more",
			},
		},
		{"calls that seldom fail", "", doctor.Connected{Calls: []doctor.Call{call("web", 100, 5)}}, "failing-calls", "", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.connected.Now = clock
			found, r := findings(t, &doctor.PlaneEvidence{Now: metrics(t, moonsail+c.text), Connected: &c.connected})
			require.Equal(t, c.severity, found[c.check].Severity)
			require.Equal(t, c.evidence, found[c.check].Evidence)
			require.Equal(t, c.severity == doctor.Critical, r.HasCritical())
		})
	}
}

func call(from string, requests, errors float64) doctor.Call {
	return doctor.Call{
		From: from + ".shop", To: "reviews.shop", Requests: requests, Errors: errors, Seconds: 60, Failures: []string{"502 (1)"},
		Why: "moonsail why " + from + "-1.shop http://reviews.shop:80/",
	}
}

// TestFailingCalls checks the advice, and that a control plane that has measured too little is not judged.
func TestFailingCalls(t *testing.T) {
	found, _ := findings(t, &doctor.PlaneEvidence{Now: metrics(t, moonsail), Connected: &doctor.Connected{Calls: []doctor.Call{call("web", 100, 52)}}})
	require.Contains(t, found["failing-calls"].Advice[0], "'moonsail why web-1.shop http://reviews.shop:80/'")
	for _, calls := range [][]doctor.Call{nil, {call("web", 19, 19)}} {
		_, r := findings(t, &doctor.PlaneEvidence{Now: metrics(t, moonsail), Connected: &doctor.Connected{Calls: calls}})
		for _, h := range r.Healthy {
			require.NotEqual(t, "failing-calls", h.Check)
		}
	}
}

// TestUnreadableProxies checks that metrics decide if the debug pages cannot be read, and that a control plane of Istio is not asked
// for them.
func TestUnreadableProxies(t *testing.T) {
	asked := 0
	examine := func(text string) map[string]doctor.Finding {
		e, err := doctor.Collect(t.Context(), doctor.Options{Metrics: page(text), Connected: func(context.Context) (*doctor.Connected, error) {
			asked++
			return nil, errors.New("no token")
		}})
		require.NoError(t, err)
		out := map[string]doctor.Finding{}
		for _, f := range doctor.Examine(e).Findings {
			out[f.Check] = f
		}
		return out
	}
	require.NotContains(t, examine(istiod), "behind")
	require.Zero(t, asked)
	f := examine(moonsail)["behind"]
	require.Equal(t, doctor.Unknown, f.Severity)
	require.Equal(t, []string{"the proxies are not known: no token"}, f.Evidence)
	f = examine(moonsail + "# TYPE moonsail_oldest_unacked_seconds gauge\nmoonsail_oldest_unacked_seconds 12\n")["behind"]
	require.Equal(t, doctor.Critical, f.Severity)
	require.Equal(t, "moonsail_oldest_unacked_seconds 12s", f.Evidence[0])
	require.Equal(t, 2, asked)
}

// TestOneMoreProxy checks the last line of a list that leaves out one proxy.
func TestOneMoreProxy(t *testing.T) {
	var all []doctor.ConnectedProxy
	for i := range 4 {
		all = append(all, doctor.ConnectedProxy{Name: fmt.Sprint(i), Behind: true})
	}
	found, _ := findings(t, &doctor.PlaneEvidence{Now: metrics(t, moonsail), Connected: &doctor.Connected{Now: clock, Proxies: all}})
	require.Equal(t, "and 1 more proxy", found["behind"].Evidence[3])
}

// TestNamesInAdvice checks that a command that users copy into a shell has no name with which a workload could add another one.
func TestNamesInAdvice(t *testing.T) {
	for name, word := range map[string]string{"web-1.shop": "web-1.shop", "web-$(id).shop": "PROXY", "`id`.shop": "PROXY", "a';id;'.shop": "PROXY", "--x.shop": "PROXY", "a\nb.shop": "PROXY"} {
		late := doctor.ConnectedProxy{Name: name, Behind: true, Types: []doctor.ConnectedType{{Type: "CDS", Refused: []doctor.RefusedResource{{Name: "a", Message: "no"}}}}}
		found, _ := findings(t, &doctor.PlaneEvidence{Now: metrics(t, moonsail), Connected: &doctor.Connected{Now: clock, Proxies: []doctor.ConnectedProxy{late}}})
		for _, check := range []string{"behind", "rejects"} {
			require.Contains(t, found[check].Advice[0], "'moonsail proxies "+word+"';", name)
		}
	}
}
