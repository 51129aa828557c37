package cli

import (
	"bytes"
	"context"
	_ "embed" // the page
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/lab/plot"
	"github.com/moonsail/moonsail/internal/terminal"
)

//go:embed all.gohtml
var allText string

var allPage = template.Must(template.New("all").Parse(allText))

// allExperiments are the experiments of "moonsail-lab all", in the order in which they run.
var allExperiments = []labRun{
	{name: "propagation", about: "time and cost of changes until every proxy has them", args: []string{"propagation"}},
	{name: "airbnb", about: "deployments and routes that change at fixed intervals, with istiod's settings", args: []string{"propagation", "--source", "kube", "--scenario", "airbnb"}, kube: true},
	{name: "expedia", about: "restarts of hundreds of pods", args: []string{"propagation", "--source", "kube", "--scenario", "expedia"}, kube: true},
	{name: "routes", about: "changes of routes in Envoy", args: []string{"routes"}},
	{name: "throughput", about: "throughput and latency with sidecars", args: []string{"throughput"}},
	{name: "balance", about: "how Envoy's worker threads share connections", args: []string{"balance"}},
	{name: "filters", about: "cost of filters, metrics and access logs", args: []string{"filters"}},
	{name: "concurrency", about: "benefit of another worker thread", args: []string{"concurrency"}},
	{name: "choices", about: "cost of each choice in a sidecar's configuration", args: []string{"choices"}},
}

// labRun is one experiment. It runs in a separate process.
type labRun struct {
	name, about string
	args        []string
	kube        bool // it needs an API server
}

// allFlags are the flags of "moonsail-lab all".
type allFlags struct {
	quick      bool
	out        string
	kubeconfig string
	only       []string

	version string // of moonsail; set by run
}

func (f *allFlags) command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "all",
		Short: "Run all experiments and write one report",
		Long: `Runs the experiments of the lab one after the other, each as its own command does. Each report has
a folder; one page and one JSON file contain all of them. After a failure the other experiments
still run. Experiments that need a Kubernetes API server run if --kubeconfig names one ('make kube'
starts one).

Exit status: 0 all succeeded, 1 some failed or were interrupted, 2 wrong flags.`,
		Example: `  moonsail-lab all --quick --out dist/lab
  moonsail-lab all --out dist/lab --kubeconfig bin/kubeconfig
  moonsail-lab all --only balance,throughput --out dist/lab`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	fs := cmd.Flags()
	fs.BoolVar(&f.quick, "quick", false, "few and short measurements: at most two minutes each")
	fs.StringVar(&f.out, "out", "", "`DIR` for the reports")
	fs.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig `FILE` of an API server, for experiments that need one")
	fs.StringSliceVar(&f.only, "only", nil, "experiments to run, by `NAME` (default: all that can run)")
	_ = cmd.MarkFlagRequired("out")
	_ = cmd.MarkFlagDirname("out") // the only error is a flag that does not exist
	terminal.EnvFlags(cmd)
	return cmd
}

// chosen are the experiments to run.
func (f *allFlags) chosen() (out []labRun, err error) {
	var names []string
	for _, x := range allExperiments {
		names = append(names, x.name)
		if wanted := len(f.only) == 0 || slices.Contains(f.only, x.name); wanted && (!x.kube || f.kubeconfig != "") {
			out = append(out, x)
		} else if wanted && len(f.only) > 0 {
			return nil, terminal.UsageError{Err: fmt.Errorf("--only %s needs --kubeconfig: 'make kube' starts an API server and writes one", x.name)}
		}
	}
	for _, n := range f.only {
		if !slices.Contains(names, n) {
			return nil, terminal.UsageError{Err: fmt.Errorf("--only %s: no such experiment: use one of %s", n, strings.Join(names, ", "))}
		}
	}
	return out, nil
}

// labResult is the result of an experiment.
type labResult struct {
	Name   string          `json:"name"`
	About  string          `json:"about"`
	Took   float64         `json:"took_s"`
	Failed string          `json:"failed,omitempty"`
	Report json.RawMessage `json:"report,omitempty"` // its report.json
	Text   string          `json:"-"`                // what it printed
	Page   string          `json:"-"`                // its report.html
}

func (f *allFlags) run(cmd *cobra.Command) error {
	list, err := f.chosen()
	if err != nil {
		return err
	}
	if err := canWriteInto(f.out); err != nil {
		return err
	}
	if _, f.version, err = findPrograms(); err != nil {
		return err
	}
	var results []labResult
	var failed []string
	for i, x := range list {
		fmt.Fprintf(cmd.ErrOrStderr(), "==> %d of %d: %s (%s)\n", i+1, len(list), x.name, x.about)
		r := f.one(cmd, x)
		if results = append(results, r); r.Failed != "" {
			failed = append(failed, x.name+": "+r.Failed)
		}
		if cmd.Context().Err() != nil {
			break
		}
	}
	if err := f.save(results); err != nil {
		return err
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "wrote %s and report.json\n", filepath.Join(f.out, "report.html"))
	if len(failed) > 0 {
		return errors.New(strings.Join(failed, "\n"))
	}
	return cmd.Context().Err()
}

// endTime limits the clean-up of an interrupted experiment. An API server takes minutes to delete thousands of pods.
const endTime = 3 * time.Minute

// one runs an experiment.
func (f *allFlags) one(cmd *cobra.Command, x labRun) labResult {
	dir := filepath.Join(f.out, x.name)
	args := append(slices.Clone(x.args), "--out", dir)
	if f.quick {
		args = append(args, "--quick")
	}
	if x.kube {
		args = append(args, "--kubeconfig", f.kubeconfig)
	}
	for _, old := range []string{"report.json", "report.html"} { // of an earlier run
		_ = os.Remove(filepath.Join(dir, old)) // there may be none
	}
	r, begun := labResult{Name: x.name, About: x.about}, time.Now()
	text, err := runSelf(cmd.Context(), terminal.Raw(cmd.OutOrStdout()), terminal.Raw(cmd.ErrOrStderr()), args)
	r.Text, r.Took = text, time.Since(begun).Seconds()
	if err != nil {
		r.Failed = err.Error()
	}
	r.Report, _ = os.ReadFile(filepath.Join(dir, "report.json")) // an experiment that failed early has none
	page, _ := os.ReadFile(filepath.Join(dir, "report.html"))
	r.Page = string(page)
	return r
}

// runSelf runs this program with other arguments and returns its standard output.
func runSelf(ctx context.Context, stdout, stderr io.Writer, args []string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	var text bytes.Buffer
	c := exec.CommandContext(ctx, self, args...)
	c.Stdout, c.Stderr = io.MultiWriter(stdout, &text), stderr
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGINT) }
	c.WaitDelay = endTime
	err = c.Run()
	return text.String(), err
}

// save writes the page and the JSON of all.
func (f *allFlags) save(results []labResult) error {
	text, err := json.MarshalIndent(map[string]any{"schema": 1, "version": f.version, "quick": f.quick, "reports": results}, "", "  ")
	if err != nil {
		return err
	}
	var page bytes.Buffer
	if err := allPage.Execute(&page, map[string]any{"Style": plot.Style, "Version": f.version, "Quick": f.quick, "Results": results}); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(f.out, "report.json"), append(text, '\n'), 0o644); err != nil { //nolint:gosec // every user may read a report
		return err
	}
	return os.WriteFile(filepath.Join(f.out, "report.html"), page.Bytes(), 0o644) //nolint:gosec // as above
}

// Body returns the body of a report's page. All pages have the same style.
func (r labResult) Body() template.HTML {
	_, after, _ := strings.Cut(r.Page, "<body>")
	body, _, _ := strings.Cut(after, "</body>")
	return template.HTML(body) //nolint:gosec // the lab has written it
}
