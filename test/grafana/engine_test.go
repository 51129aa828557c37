package grafana

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/util/teststorage"
	"github.com/stretchr/testify/require"
)

// Folders, by environment variables. scrapes has what TestIstioDashboards of test/e2e saved. istio may have Istio's
// dashboards (manifests/addons/dashboards of its repository), which are then evaluated as they are.
const (
	scrapesVariable = "MOONSAIL_SCRAPES"
	istioVariable   = "ISTIO_DASHBOARDS"
)

// targets are the labels that Prometheus gives to what it scrapes, as docs/observe.md configures it.
var targets = map[string][]string{
	"control-plane": {"instance", "10.0.0.1:15014", "job", "kubernetes-pods", "app", "istiod", "pod", "istiod-0", "namespace", "istio-system"},
	"client":        {"instance", "10.0.0.2:15020", "job", "kubernetes-pods", "app", "client", "pod", "client-0", "namespace", "shop"},
	"server":        {"instance", "10.0.0.3:15020", "job", "kubernetes-pods", "app", "server", "pod", "server-0", "namespace", "shop"},
}

// prometheus evaluates queries over scrapes.
type prometheus struct {
	storage *teststorage.TestStorage
	engine  *promql.Engine
	now     time.Time
}

// start loads the scrapes. Each target was scraped every 15 s for a minute, of which the first half has the numbers of
// the first scrape.
func start(t *testing.T) *prometheus {
	t.Helper()
	dir := os.Getenv(scrapesVariable)
	if dir == "" {
		t.Skipf("needs scrapes of a mesh in $%s: run 'make grafana-test'", scrapesVariable)
	}
	p := &prometheus{storage: teststorage.New(t), now: time.Unix(1_800_000_000, 0)}
	p.engine = promql.NewEngine(promql.EngineOpts{MaxSamples: 10_000_000, Timeout: time.Minute, Parser: parser.NewParser(parser.Options{})})
	for target, labels := range targets {
		for i, name := range []string{"first", "first", "second", "second"} {
			text, err := os.ReadFile(filepath.Join(dir, target+"."+name))
			require.NoError(t, err)
			p.load(t, text, labels, p.now.Add(time.Duration(i-3)*15*time.Second))
		}
	}
	return p
}

func (p *prometheus) load(t *testing.T, text []byte, target []string, at time.Time) {
	t.Helper()
	app := p.storage.Appender(t.Context())
	lines := textparse.NewPromParser(text, labels.NewSymbolTable(), false)
	for {
		entry, err := lines.Next()
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
		if entry != textparse.EntrySeries {
			continue
		}
		var own labels.Labels
		lines.Labels(&own)
		_, _, value := lines.Series()
		b := labels.NewBuilder(own)
		for pair := range slices.Chunk(target, 2) {
			b.Set(pair[0], pair[1])
		}
		_, err = app.Append(0, b.Labels(), at.UnixMilli(), value)
		require.NoError(t, err)
	}
	require.NoError(t, app.Commit())
}

// ask evaluates a query and returns the number of series in the answer.
func (p *prometheus) ask(t *testing.T, query string) int {
	t.Helper()
	q, err := p.engine.NewInstantQuery(t.Context(), p.storage, nil, query, p.now)
	require.NoError(t, err, query)
	defer q.Close()
	answer := q.Exec(t.Context())
	require.NoError(t, answer.Err, query)
	vector, err := answer.Vector()
	require.NoError(t, err, query)
	return len(vector)
}

// TestSeriesOfIstioDashboards evaluates a query over each series that Istio's dashboards read, with all of its labels.
func TestSeriesOfIstioDashboards(t *testing.T) {
	p := start(t)
	text, err := os.ReadFile("../e2e/testdata/istio-dashboards.txt")
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if len(words) == 0 || words[0] == "#" || words[1] == "absent" || slices.Contains(events, words[1]) {
			continue
		}
		t.Run(words[0]+"/"+words[1], func(t *testing.T) {
			by := strings.ReplaceAll(strings.Join(words[2:], ", "), "target:", "")
			query := fmt.Sprintf("sum by (%s) (rate(%s[1m]))", by, words[1])
			require.Positive(t, p.ask(t, query), query)
			if strings.HasSuffix(words[1], "_bucket") {
				query = fmt.Sprintf("histogram_quantile(0.99, %s)", query)
				require.Positive(t, p.ask(t, query), query)
			}
		})
	}
}

// events are metrics with labels that exist after their first event, which the scraped mesh does not have: it refuses
// nothing and reads a directory. test/e2e checks their labels.
var events = []string{"pilot_total_xds_rejects", "pilot_k8s_reg_events", "pilot_k8s_cfg_events"}

// without are metrics that the scraped mesh does not have: of events, and those with another source.
func without(t *testing.T, query string) bool {
	t.Helper()
	other := []string{"container_", "moonsail_apiserver_delay_seconds", "moonsail_admissions_total", "moonsail_panics_total", "istio_request_duration_seconds_bucket"}
	for _, name := range metricsOf(t, query) {
		if slices.Contains(events, name) || slices.ContainsFunc(other, func(o string) bool { return strings.HasPrefix(name, o) }) {
			return true
		}
	}
	return false
}

// mayBeEmpty are queries of conditions that the scraped mesh does not have.
func mayBeEmpty(query string) bool {
	for _, part := range []string{`response_code=~"4..`, `response_code=~"5..`, "> 0", "== 0", `source_workload="istio-ingressgateway"`, `response_code!~"2..`, `component="ztunnel"`} {
		if strings.Contains(query, part) {
			return true
		}
	}
	return false
}

// anySecurity matches conditions by which Istio's dashboards separate calls with mutual TLS from others.
var anySecurity = regexp.MustCompile(`\b(connection_security_policy|destination_principal) *(?:=|!=|=~|!~)"(?:mutual_tls|spiffe.\*)"`)

// requireAnswers checks that the queries of dashboards have answers.
func requireAnswers(t *testing.T, p *prometheus, boards []dashboard) {
	t.Helper()
	for _, d := range boards {
		t.Run(d.title, func(t *testing.T) {
			answered := 0
			for _, query := range d.queries {
				n := p.ask(t, filled(query))
				if n == 0 { // one of two panels: calls with mutual TLS, and others
					n = p.ask(t, filled(anySecurity.ReplaceAllString(query, `$1=~".+"`)))
				}
				if n == 0 && !mayBeEmpty(query) && !without(t, query) {
					t.Errorf("no answer: %s", query)
				}
				if n > 0 {
					answered++
				}
			}
			t.Logf("%d of %d queries have an answer", answered, len(d.queries))
		})
	}
}

// TestAnswersOfOurDashboards checks that each panel of deploy/grafana shows something.
func TestAnswersOfOurDashboards(t *testing.T) { requireAnswers(t, start(t), read(t, ours)) }

// TestAnswersOfIstioDashboards evaluates Istio's dashboards as they are, if they are given.
func TestAnswersOfIstioDashboards(t *testing.T) {
	dir := os.Getenv(istioVariable)
	if dir == "" {
		t.Skipf("needs Istio's dashboards in $%s: manifests/addons/dashboards of its repository", istioVariable)
	}
	boards := slices.DeleteFunc(read(t, dir), func(d dashboard) bool {
		return !slices.Contains([]string{"Istio Mesh Dashboard", "Istio Service Dashboard", "Istio Workload Dashboard", "Istio Performance Dashboard", "Istio Control Plane Dashboard"}, d.title)
	})
	require.Len(t, boards, 5)
	requireAnswers(t, start(t), boards)
}
