package grafana

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/require"
)

// ours are the dashboards that Moonsail ships.
const ours = "../../deploy/grafana"

// dashboard is the part of a dashboard that is tested.
type dashboard struct {
	title   string
	queries []string
}

// read returns the dashboards of a folder.
func read(t *testing.T, dir string) []dashboard {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	require.NoError(t, err)
	var out []dashboard
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		var board map[string]any
		require.NoError(t, json.Unmarshal(text, &board), file)
		title, _ := board["title"].(string)
		d := dashboard{title: title}
		d.add(board)
		if len(d.queries) > 0 {
			out = append(out, d)
		}
	}
	require.NotEmpty(t, out, "no dashboards in %s", dir)
	return out
}

// add finds the queries of panels.
func (d *dashboard) add(part any) {
	switch part := part.(type) {
	case map[string]any:
		for name, value := range part {
			if text, ok := value.(string); ok && name == "expr" && !slices.Contains(d.queries, text) {
				d.queries = append(d.queries, text)
			}
			d.add(value)
		}
	case []any:
		for _, one := range part {
			d.add(one)
		}
	}
}

// Variables are replaced as Grafana does it for a choice of everything.
var (
	interval = regexp.MustCompile(`\$__(rate_)?interval`)
	variable = regexp.MustCompile(`\$\{?\w+(:\w+)?\}?`)
)

func filled(query string) string {
	query = strings.ReplaceAll(query, `="$service"`, `="server.shop.svc.cluster.local"`) // a choice of one
	return variable.ReplaceAllString(interval.ReplaceAllString(query, "1m"), ".*")
}

// metricsOf returns the names of the metrics that a query reads.
func metricsOf(t *testing.T, query string) []string {
	t.Helper()
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(filled(query))
	require.NoError(t, err, query)
	var names []string
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		if v, ok := n.(*parser.VectorSelector); ok {
			names = append(names, v.Name)
		}
		return nil
	})
	return names
}

// notOurs are the metrics of the Go runtime and the process, which the reference does not list one by one.
var notOurs = regexp.MustCompile(`^(go|process)_`)

// documented are the metrics of requests, which docs/observe.md has, and all others in the reference.
func documented(t *testing.T) string {
	t.Helper()
	out := ""
	for _, page := range []string{"../../docs/reference/metrics.md", "../../docs/observe.md"} {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		out += string(text)
	}
	return out
}

// TestQueriesOfOurDashboards checks that each query can be parsed, and reads metrics that the documentation has.
func TestQueriesOfOurDashboards(t *testing.T) {
	known, ids := documented(t), map[string]bool{}
	boards := read(t, ours)
	require.Len(t, boards, 3)
	for _, d := range boards {
		t.Run(d.title, func(t *testing.T) {
			require.False(t, ids[d.title], "the title is unique")
			ids[d.title] = true
			require.Greater(t, len(d.queries), 10)
			for _, query := range d.queries {
				for _, name := range metricsOf(t, query) {
					base := regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(name, "")
					if !notOurs.MatchString(name) {
						require.True(t, strings.Contains(known, "`"+name+"`") || strings.Contains(known, "`"+base+"`"), "%s is not documented: %s", name, query)
					}
				}
			}
		})
	}
}

// TestPanels checks what Grafana needs of a panel: a unique id, a place that no other panel has, and the
// data source of the dashboard.
func TestPanels(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(ours, "*.json"))
	require.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		var board struct {
			UID    string
			Panels []struct {
				ID      int
				Title   string
				Type    string
				GridPos struct{ X, Y, W, H int }
				Targets []struct{ Datasource struct{ UID string } }
			}
		}
		require.NoError(t, json.Unmarshal(text, &board))
		require.Equal(t, strings.TrimSuffix(filepath.Base(file), ".json"), board.UID)
		ids, cells := map[int]bool{}, map[[2]int]string{}
		for _, p := range board.Panels {
			require.False(t, ids[p.ID], p.Title)
			ids[p.ID] = true
			require.LessOrEqual(t, p.GridPos.X+p.GridPos.W, 24, p.Title)
			for x := range p.GridPos.W {
				for y := range p.GridPos.H {
					cell := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
					require.Empty(t, cells[cell], "%s: %s lies on it", file, p.Title)
					cells[cell] = p.Title
				}
			}
			for _, target := range p.Targets {
				require.Equal(t, "${datasource}", target.Datasource.UID, p.Title)
			}
		}
	}
}
