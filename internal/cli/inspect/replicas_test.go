package inspect

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/controlplane/debug"
	"github.com/moonsail/moonsail/internal/diagnose/explain"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/changelog"
	"github.com/moonsail/moonsail/internal/xds/distribution"
)

// several serves a page of a control plane with peers: all for the mesh, local with ?local.
func several(t *testing.T, page string, all, local any) (address string) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := all
		switch {
		case r.URL.Path != page:
			w.WriteHeader(http.StatusNotFound)
			answer = debug.Failure{Error: "no such page"}
		case r.URL.Query().Has("local"):
			w.Header().Set(debug.HeaderOthers, "2")
			answer = local
		}
		_ = json.NewEncoder(w).Encode(answer)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// reviewsChange returns a change that two proxies have.
func reviewsChange(elsewhere ...explain.PeerStatus) *explain.Explanation {
	return &explain.Explanation{
		Now: noon, Object: model.Key{Kind: model.KindVirtualService, Namespace: "shop", Name: "reviews"}, Exists: true, ResourceVersion: "81",
		Origin: "kubernetes", Revision: 3, State: changelog.Distributed, Counts: explain.Counts{Acked: 2}, Elsewhere: elsewhere,
	}
}

func standsAt(address, silent string, state changelog.State) explain.PeerStatus {
	return explain.PeerStatus{PeerQuery: explain.PeerQuery{ControlPlane: address, Silent: silent}, State: state, Exists: true, ResourceVersion: "80", Origin: "kubernetes"}
}

const reviewsPage = "/debug/explain/VirtualService/shop/reviews"

// TestWaitForAllControlPlanes checks that a change has not arrived while one control plane does not answer.
func TestWaitForAllControlPlanes(t *testing.T) {
	const a, b = "10.0.0.1:15012", "10.0.0.2:15012"
	for name, tc := range map[string]struct {
		elsewhere explain.PeerStatus
		status    int
		want      string
	}{
		"silent":   {standsAt(b, "no answer for 6s: why", ""), int(exitTimeout), "  control plane " + b + " does not answer: no answer for 6s: why\n"},
		"lags":     {standsAt(b, "", explain.OtherVersion), int(exitTimeout), "  control plane " + b + " has another version of it (kubernetes, 80)\n"},
		"building": {standsAt(b, "", changelog.Building), int(exitTimeout), "  control plane " + b + " has it, and is about to send it\n"},
		"has it":   {standsAt(b, "", changelog.Distributed), 0, "distributed to 2 of 2 proxies (100 %); 3 of 3 control planes have it\n"},
	} {
		t.Run(name, func(t *testing.T) {
			address := several(t, reviewsPage, reviewsChange(standsAt(a, "", changelog.Distributed), tc.elsewhere), reviewsChange())
			for _, share := range []string{"distribution=100%", "distribution=1%"} {
				status, out, errOut := waitBriefly(t, "vs/reviews", "-n", "shop", "--for", share, "--address", address)
				require.Equal(t, tc.status, status, out+errOut)
				require.Contains(t, out, tc.want)
				require.NotContains(t, errOut, "note:")
			}
			status, out, errOut := moonsail(t, "wait", "vs/reviews", "-n", "shop", "--timeout", "1m", "--local", "--address", address)
			require.Zero(t, status, out)
			require.NotContains(t, out, "control planes")
			require.Contains(t, errOut, "; 2 more serve this mesh")
		})
	}
}

func TestExplainAllControlPlanes(t *testing.T) {
	e := reviewsChange(standsAt("10.0.0.1:15012", "", changelog.Distributing), standsAt("10.0.0.2:15012", "", explain.OtherVersion))
	slow := where("web-1", distribution.StateBehind, distribution.Reason{Cause: distribution.CauseUnanswered, Type: "RDS"})
	slow.ControlPlane = "10.0.0.1:15012"
	e.Counts.Behind, e.Proxies = 1, []distribution.ProxySyncStatus{slow}
	address := several(t, reviewsPage, e, reviewsChange())
	_, out, _ := moonsail(t, "explain", "vs/reviews", "-n", "shop", "--in-use", "0", "--address", address)
	require.Contains(t, out, "distributed to 2 of 3 proxies (66.7 %); 1 behind; 2 of 3 control planes have it\n  control plane 10.0.0.2:15012 has another version of it (kubernetes, 80)\n")
	require.Contains(t, out, "\nweb-1.shop (10.0.0.1:15012)  behind  has not answered RDS\n")
	_, out, _ = moonsail(t, "explain", "vs/reviews", "-n", "shop", "--in-use", "0", "-o", "json", "--address", address)
	var back explain.Explanation
	require.NoError(t, json.Unmarshal([]byte(out), &back))
	require.Equal(t, e.Elsewhere, back.Elsewhere)
	require.Equal(t, "10.0.0.1:15012", back.Proxies[0].ControlPlane)
}

func TestProxiesOfAllControlPlanes(t *testing.T) {
	all := debug.ProxyList{Now: noon, Proxies: oneProxy{}.Proxies(), Others: []explain.PeerQuery{
		{ControlPlane: "10.0.0.1:15012", LeftOut: 7}, {ControlPlane: "10.0.0.2:15012", Silent: "no answer for 6s: why"}}}
	theirs := aProxy()
	theirs.Name, theirs.ControlPlane = "web-1", "10.0.0.1:15012"
	all.Proxies = append(all.Proxies, theirs)
	address := several(t, "/debug/proxies", all, debug.ProxyList{Now: noon, Proxies: oneProxy{}.Proxies()})
	_, out, errOut := moonsail(t, "proxies", "--address", address)
	require.Regexp(t, `(?m)^NAME .* CONTROL PLANE$`, out)
	require.Regexp(t, `(?m)^reviews-1 .* this one$`, out)
	require.Regexp(t, `(?m)^web-1 .* 10.0.0.1:15012$`, out)
	require.Contains(t, out, "control plane 10.0.0.1:15012 has 7 more: list them with --address and --local\n")
	require.Contains(t, out, "control plane 10.0.0.2:15012 does not answer: no answer for 6s: why\n")
	require.NotContains(t, errOut, "note:")
	_, _, errOut = moonsail(t, "proxies", "-o", "name", "--address", address)
	require.Contains(t, errOut, "control plane 10.0.0.2:15012 does not answer: no answer for 6s: why\n")
	_, out, errOut = moonsail(t, "proxies", "--local", "--address", address)
	require.NotContains(t, out, "CONTROL PLANE")
	require.NotContains(t, out, "this one")
	require.Contains(t, errOut, "note:")
}

func TestStaleOfAllControlPlanes(t *testing.T) {
	all := explain.Stale{Now: noon, Holders: []explain.StaleHolder{{Name: "web-1", Namespace: "shop", Address: "10.1.1.1:80", Since: noon, ControlPlane: "10.0.0.1:15012"}},
		Others: []explain.PeerQuery{{ControlPlane: "10.0.0.2:15012", Silent: "why"}}}
	address := several(t, "/debug/stale", all, explain.Stale{Now: noon})
	_, out, _ := moonsail(t, "stale", "--address", address)
	require.Regexp(t, `(?m)^web-1.shop \(10.0.0.1:15012\) +10.1.1.1:80 `, out)
	require.Contains(t, out, "control plane 10.0.0.2:15012 does not answer: why\n")
	for _, format := range []string{"name", "jsonpath={.holders[*].name}"} {
		_, out, errOut := moonsail(t, "stale", "-o", format, "--address", address)
		require.Contains(t, out, "web-1")
		require.NotContains(t, out, "does not answer")
		require.Contains(t, errOut, "control plane 10.0.0.2:15012 does not answer: why\n")
	}
	_, out, _ = moonsail(t, "stale", "--local", "--address", address)
	require.Equal(t, "no connected proxy holds a removed endpoint\n", out)

	var b strings.Builder
	require.NoError(t, printStale(&cobra.Command{}, &b, &explain.Stale{Others: all.Others}))
	require.Contains(t, b.String(), "no known connected proxy holds")
}
