package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/pipeline/changelog"
	"github.com/moonsail/moonsail/internal/xds/resource"
)

// scrapesVariable names a folder for the scrapes of TestIstioDashboards. test/grafana evaluates queries over them.
const scrapesVariable = "MOONSAIL_SCRAPES"

// TestIstioDashboards checks that two sidecars and a control plane have each series, with each label, that the queries
// of Istio's Grafana dashboards read. testdata/istio-dashboards.txt lists them.
func TestIstioDashboards(t *testing.T) {
	m := startMutual(t)
	calls := func() {
		m.callOnce(t)
		require.Equal(t, "welcome\n", m.line(m.client.ip, serviceTCP))
	}
	scrapes := map[string]string{}
	for round, name := range []string{"first", "second"} {
		calls()
		for _, w := range []*member{m.client, m.server} {
			w.requireSample(t, "istio_requests_total", map[string]string{"destination_service_name": "server"}, float64(round+1))
			w.requireSample(t, "istio_tcp_connections_closed_total", map[string]string{"destination_service_name": "server"}, float64(round+1))
			scrapes[w.name] = w.metrics(t)
			saveScrape(t, w.name+"."+name, scrapes[w.name])
		}
		scrapes["control-plane"] = m.page(t, "/metrics")
		saveScrape(t, "control-plane."+name, scrapes["control-plane"])
	}
	all := scrapes["client"] + scrapes["server"] + scrapes["control-plane"] + onlyWithEvents(t)

	text, err := os.ReadFile("testdata/istio-dashboards.txt")
	require.NoError(t, err)
	series := 0
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if len(words) == 0 || words[0] == "#" {
			continue
		}
		series++
		t.Run(words[0]+"/"+words[1], func(t *testing.T) {
			if words[1] == "absent" {
				require.Empty(t, seriesOf(all, words[2]), "it is there: the list and docs/observe.md must not call it absent")
				return
			}
			requireLabels(t, seriesOf(all, words[1]), words[2:])
		})
	}
	require.Greater(t, series, 40)
}

// requireLabels checks that one of some series has all labels. Prometheus adds those of the target.
func requireLabels(t *testing.T, list, labels []string) {
	t.Helper()
	require.NotEmpty(t, list, "no such series")
	for _, one := range list {
		all := true
		for _, l := range labels {
			all = all && (strings.HasPrefix(l, "target:") || regexp.MustCompile(`[{,]`+l+`="[^"]`).MatchString(one))
		}
		if all {
			return
		}
	}
	t.Errorf("no series has all of %v with a value; the first is %s", labels, list[0])
}

// seriesOf returns the series of a metric.
func seriesOf(text, metric string) []string {
	return regexp.MustCompile(`(?m)^`+metric+`(?:\{.*\})? .*$`).FindAllString(text, -1)
}

// onlyWithEvents has series that the control plane of a directory without refusals does not have.
func onlyWithEvents(t *testing.T) string {
	t.Helper()
	m := changelog.NewMetrics()
	m.Rejected(resource.Cluster)
	m.KubernetesEvent("Pod", false, "add")
	m.KubernetesEvent("VirtualService", true, "add")
	families, err := m.Registry.Gather()
	require.NoError(t, err)
	var b strings.Builder
	for _, f := range families {
		switch f.GetName() {
		case "pilot_total_xds_rejects", "pilot_k8s_reg_events", "pilot_k8s_cfg_events":
			for _, one := range f.GetMetric() {
				var labels []string
				for _, l := range one.GetLabel() {
					labels = append(labels, l.GetName()+`="`+l.GetValue()+`"`)
				}
				b.WriteString(f.GetName() + "{" + strings.Join(labels, ",") + "} 1\n")
			}
		}
	}
	return b.String()
}

func saveScrape(t *testing.T, name, text string) {
	t.Helper()
	if dir := os.Getenv(scrapesVariable); dir != "" {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
}
