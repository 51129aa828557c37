package arch

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/pipeline/changelog"
	"github.com/moonsail/moonsail/internal/sidecar/agent/identity"
	"github.com/moonsail/moonsail/internal/sidecar/agent/nameserver"
	"github.com/moonsail/moonsail/internal/sidecar/agent/wasm"
)

// metric is a metric that the code declares.
type metric struct {
	name, kind, help string
	labels           []string
}

// metricMakers are the functions that declare a metric by name and help, with the number of further arguments that
// come before the names of labels; -1: there are no labels.
var metricMakers = map[string]struct {
	kind  string
	after int
}{
	"counter": {"counter", -1}, "counterVec": {"counter", 0}, "gaugeVec": {"gauge", 0}, "histogram": {"histogram", -1},
	"histogramVec": {"histogram", 1}, "nativeVec": {"histogram", 1}, "Gauge": {"gauge", -1}, "Counter": {"counter", -1},
}

// TestMetricsReference holds docs/reference/metrics.md to the metrics that the code declares.
func TestMetricsReference(t *testing.T) {
	control := metricsIn(t, "internal/controlplane", "internal/pipeline", "internal/xds", "internal/source", "internal/security")
	agent := metricsIn(t, "internal/sidecar/agent")
	plugin := metricsIn(t, "internal/sidecar/cni")
	requireRegistered(t, control, changelog.NewMetrics().Registry)
	r := prometheus.NewRegistry()
	identity.NewMetrics(r)
	nameserver.NewMetrics(r)
	wasm.NewMetrics(r)
	requireRegistered(t, agent, r)

	var b strings.Builder
	b.WriteString(`# Metrics

Metrics have the names and the meaning of Istio where Istio has the metric. All others begin with ` + "`moonsail_`" + `.
The alerts in [deploy/alerts.yaml](../../deploy/alerts.yaml) use them. [observe.md](../observe.md) describes the metrics of requests,
which Envoy counts and the agent converts.

## Control plane

At ` + "`/metrics`" + ` of ` + "`--http-addr`" + ` (port 15014), with the metrics of the Go runtime and the process (` + "`go_`, `process_`" + `).

`)
	metricTable(&b, control)
	b.WriteString(`
## Agent

At ` + "`/stats/prometheus`" + ` of the status port (15020), merged with those of Envoy and of the application.
The metrics of the Go runtime and the process have the prefix ` + "`istio_agent_`" + `.

`)
	metricTable(&b, agent)
	b.WriteString(`
## CNI agent

At ` + "`/metrics`" + ` of ` + "`--http-addr`" + ` (port 15014) of ` + "`moonsail cni agent`" + `, with the metrics of the Go runtime and the process.

`)
	metricTable(&b, plugin)
	holdReference(t, "metrics.md", b.String())
}

func metricTable(b *strings.Builder, metrics map[string]metric) {
	b.WriteString("| Metric | Type | Labels | Meaning |\n|---|---|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(metrics)) {
		m := metrics[name]
		labels := ""
		if len(m.labels) > 0 {
			labels = codes(m.labels)
		}
		fmt.Fprintf(b, "| `%s` | %s | %s | %s |\n", m.name, m.kind, labels, cell(m.help))
	}
}

// requireRegistered checks that the source has each metric that a registry describes.
func requireRegistered(t *testing.T, found map[string]metric, r *prometheus.Registry) {
	t.Helper()
	descriptions := make(chan *prometheus.Desc, 1000)
	r.Describe(descriptions)
	close(descriptions)
	for d := range descriptions {
		_, name, _ := strings.Cut(d.String(), `fqName: "`)
		name, _, _ = strings.Cut(name, `"`)
		if !strings.HasPrefix(name, "go_") && !strings.HasPrefix(name, "process_") {
			require.Contains(t, found, name)
		}
	}
}

// metricsIn reads the declarations of metrics in the source of folders, without tests.
func metricsIn(t *testing.T, folders ...string) map[string]metric {
	t.Helper()
	found := map[string]metric{}
	for _, folder := range folders {
		require.NoError(t, filepath.WalkDir(filepath.Join(root, folder), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			if err != nil || !strings.Contains(string(text), "etric") && !strings.Contains(string(text), "prometheus") {
				return err
			}
			f, err := parser.ParseFile(token.NewFileSet(), path, text, 0)
			if err == nil {
				metricsOf(f, found)
			}
			return err
		}))
	}
	require.NotEmpty(t, found)
	return found
}

func metricsOf(f *ast.File, found map[string]metric) {
	lists := map[string][]string{} // variables with lists of texts
	ast.Inspect(f, func(n ast.Node) bool {
		if a, ok := n.(*ast.AssignStmt); ok && len(a.Lhs) == 1 {
			if name, ok := a.Lhs[0].(*ast.Ident); ok {
				lists[name.Name] = texts(a.Rhs[0], nil)
			}
		}
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) == 0 {
			return true
		}
		m := metric{}
		name := calledName(call)
		if opts, ok := call.Args[0].(*ast.CompositeLit); ok && strings.HasPrefix(name, "New") {
			m = optsOf(opts)
			m.kind = strings.ToLower(strings.TrimSuffix(strings.TrimSuffix(strings.TrimPrefix(name, "New"), "Vec"), "Func"))
			if strings.HasSuffix(name, "Vec") && len(call.Args) > 1 {
				m.labels = append(m.labels, texts(call.Args[1], lists)...)
			}
		} else if name == "NewDesc" && len(call.Args) == 4 {
			m = metric{name: text(call.Args[0]), help: text(call.Args[1]), kind: "gauge", labels: texts(call.Args[2], lists)}
		} else if maker, ok := metricMakers[name]; ok && len(call.Args) > 1 {
			m = metric{name: text(call.Args[0]), help: text(call.Args[1]), kind: maker.kind}
			for i := 2 + maker.after; maker.after >= 0 && i < len(call.Args); i++ {
				m.labels = append(m.labels, text(call.Args[i]))
			}
		}
		if m.name != "" && m.help != "" {
			found[m.name] = m
		}
		return true
	})
}

func calledName(call *ast.CallExpr) string {
	switch fun := call.Fun.(type) {
	case *ast.SelectorExpr:
		return fun.Sel.Name
	case *ast.Ident:
		return fun.Name
	}
	return ""
}

// optsOf reads prometheus.CounterOpts and the like.
func optsOf(lit *ast.CompositeLit) (m metric) {
	for _, e := range lit.Elts {
		kv, ok := e.(*ast.KeyValueExpr)
		if !ok {
			continue
		}
		key, _ := kv.Key.(*ast.Ident)
		switch {
		case key == nil:
		case key.Name == "Name":
			m.name = text(kv.Value)
		case key.Name == "Help":
			m.help = text(kv.Value)
		case key.Name == "ConstLabels":
			if labels, ok := kv.Value.(*ast.CompositeLit); ok {
				for _, e := range labels.Elts {
					m.labels = append(m.labels, text(e.(*ast.KeyValueExpr).Key))
				}
			}
		}
	}
	return m
}

// text is the value of a literal, or of a sum of some; empty: it is neither.
func text(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		s, _ := strconv.Unquote(e.Value)
		return s
	case *ast.BinaryExpr:
		return text(e.X) + text(e.Y)
	}
	return ""
}

// texts are the elements of a list of texts, or of a variable that has one.
func texts(e ast.Expr, lists map[string][]string) (out []string) {
	switch e := e.(type) {
	case *ast.Ident:
		return lists[e.Name]
	case *ast.CompositeLit:
		for _, el := range e.Elts {
			if s := text(el); s != "" {
				out = append(out, s)
			}
		}
	}
	return out
}
