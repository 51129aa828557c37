package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/config"
	"github.com/moonsail/moonsail/internal/config/analyze"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/source/file"
	"github.com/moonsail/moonsail/internal/source/kube"
	"github.com/moonsail/moonsail/internal/terminal"
)

// analysis is what "moonsail analyze" prints.
type analysis struct {
	Files    int          `json:"files"`
	Cluster  string       `json:"cluster,omitempty"` // the API server, where there are no files
	Objects  int          `json:"objects"`
	Errors   int          `json:"errors"`
	Warnings int          `json:"warnings"`
	Infos    int          `json:"infos"`
	Problems problem.List `json:"problems"`

	nothing bool // no file has anything in it
}

// analyzeFlags are those of "moonsail analyze".
type analyzeFlags struct {
	out    terminal.Output
	domain string
	root   string
	level  string
	empty  bool
	kube   kubeFlags
}

// NewAnalyzeCommand is "moonsail analyze".
func NewAnalyzeCommand() *cobra.Command {
	var f analyzeFlags
	cmd := &cobra.Command{
		Use:   "analyze [DIR|FILE|-]...",
		Short: "Say what is wrong in a directory of YAML, or in a cluster",
		Long: `Reads Kubernetes and Istio objects from directory trees of YAML and JSON, from files or
standard input (-), or from a Kubernetes API server, and says what is wrong with them, those of
files with file and line:

  error     the object is not used, or requests to it fail or go elsewhere
  warning   something has no effect, or not the one that was probably meant
  info      something could be said better

Single objects are checked as 'moonsail serve' checks them; then all of them against
each other: destinations, subsets, ports, hosts that are routed twice, rules that are
never used. Several files are checked as one mesh. Without arguments it is the cluster of --kubeconfig,
or of $KUBECONFIG, or in a Pod its own; it is listed once and nothing in it is changed.

Exit status: 0 no errors, 1 errors, or nothing to analyze (unless --allow-empty), 2 wrong usage.`,
		Example: `  moonsail analyze config/
  moonsail analyze config/ --level warning
  moonsail analyze reviews.yaml ratings.yaml -o json
  kubectl kustomize overlays/prod | moonsail analyze -
  moonsail analyze --kubeconfig ~/.kube/config`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args) },
	}
	f.out.AddFlag(cmd)
	mesh := model.DefaultMesh()
	cmd.Flags().StringVar(&f.domain, "domain", mesh.Domain, "DNS `DOMAIN` of the cluster")
	cmd.Flags().StringVar(&f.root, "root-namespace", mesh.RootNamespace, "`NAMESPACE` that has the mesh's configuration")
	cmd.Flags().StringVar(&f.level, "level", string(problem.SeverityInfo), "`LEVEL` from which on problems are told: info, warning or error")
	terminal.Offer(cmd, "level", levels...)
	cmd.Flags().BoolVar(&f.empty, "allow-empty", false, "exit with 0 where there is nothing to analyze")
	f.kube.add(cmd)
	return cmd
}

// levels are those of --level.
var levels = []string{string(problem.SeverityInfo), string(problem.SeverityWarning), string(problem.SeverityError)}

func (f *analyzeFlags) run(cmd *cobra.Command, args []string) error {
	keep, err := severities(f.level)
	if err != nil {
		return terminal.UsageError{Err: err}
	}
	if len(args) == 0 && f.kube.cluster.Kubeconfig == "" {
		f.kube.cluster.Kubeconfig = os.Getenv("KUBECONFIG") // as kubectl and istioctl do; nothing is changed there
	}
	cluster, err := f.kube.choose("a directory or file", len(args) > 0)
	if err != nil {
		return err
	}
	var a analysis
	if cluster != nil {
		progress := terminal.StartProgress(cmd.ErrOrStderr(), "reading the cluster")
		a, err = f.analyzeCluster(cmd.Context(), *cluster, keep)
		progress.Done()
	} else {
		a, err = f.analyzeFiles(cmd.InOrStdin(), args, keep)
	}
	if err != nil {
		return err
	}
	if err := f.out.Print(cmd.OutOrStdout(), a, func(w io.Writer) error { return printAnalysis(w, a) }); err != nil {
		return err
	}
	if a.nothing && !f.empty {
		return &terminal.UserError{What: "there is nothing to analyze", Where: strings.Join(args, " "),
			Next: "name what has objects, in files that end in .yaml, .yml or .json; --allow-empty lets it pass"}
	}
	if a.Errors > 0 {
		return terminal.ExitCode(terminal.ExitFailed)
	}
	return nil
}

// severities lists those that are at least as grave as level.
func severities(level string) ([]problem.Severity, error) {
	all := []problem.Severity{problem.SeverityError, problem.SeverityWarning, problem.SeverityInfo}
	i := slices.Index(all, problem.Severity(level))
	if i < 0 {
		return nil, fmt.Errorf("unknown level %q: it is one of info, warning, error", level)
	}
	return all[:i+1], nil
}

// analyzeFiles reads directories, files, and standard input.
func (f *analyzeFlags) analyzeFiles(stdin io.Reader, paths []string, keep []problem.Severity) (analysis, error) {
	tree, err := file.AnalyzeAll(config.Decoder{Domain: f.domain}, stdin, paths...)
	if err != nil {
		e := &terminal.UserError{What: "cannot analyze", Where: strings.Join(paths, " "), Err: err, Next: "give a directory, a file of YAML, or - for standard input"}
		var at *fs.PathError
		if errors.As(err, &at) {
			e.Where, e.Err = at.Path, at.Err
		}
		return analysis{}, e
	}
	across := analyze.Check(tree.Objects, f.domain)
	tree.Locate(across)
	all := append(tree.Problems, across...)
	a := newAnalysis(all, keep)
	a.Files, a.Objects, a.nothing = tree.Files, len(tree.Objects), tree.Documents == 0 && len(all) == 0
	return a, nil
}

func (f *analyzeFlags) analyzeCluster(ctx context.Context, c kube.Cluster, keep []problem.Severity) (analysis, error) {
	client, err := kube.Connect(c)
	if err != nil {
		return analysis{}, f.kube.explainKube(err)
	}
	defer client.Close()
	decoder := config.Decoder{Domain: f.domain}
	content, err := client.Read(ctx, decoder, f.root)
	if err == nil {
		err = client.ReadCredentials(ctx, decoder, content)
	}
	if err != nil {
		return analysis{}, f.kube.explainKube(err)
	}
	a := newAnalysis(append(content.Problems, analyze.Check(content.Objects, f.domain)...), keep)
	a.Cluster, a.Objects = client.Address(), len(content.Objects)
	return a, nil
}

func newAnalysis(all problem.List, keep []problem.Severity) analysis {
	all = slices.DeleteFunc(all, func(p problem.Problem) bool { return !slices.Contains(keep, p.Severity) })
	all.Sort()
	return analysis{
		Problems: append(problem.List{}, all...),
		Errors:   all.Count(problem.SeverityError),
		Warnings: all.Count(problem.SeverityWarning),
		Infos:    all.Count(problem.SeverityInfo),
	}
}

// printAnalysis prints a problem a line, as compilers do, and a sum.
func printAnalysis(w io.Writer, a analysis) error {
	s := terminal.StyleFor(w)
	paint := map[problem.Severity]func(string) string{
		problem.SeverityError: s.Bad, problem.SeverityWarning: s.Warn, problem.SeverityInfo: s.Dim,
	}
	for _, p := range a.Problems {
		line := paint[p.Severity](string(p.Severity)) + ": "
		if w := p.Where(); w != "" {
			line = s.Bold(w) + ": " + line
		}
		if p.Object.Name != "" {
			line += p.Object.String() + ": "
		}
		if p.Field != "" {
			line += s.Dim(p.Field) + ": "
		}
		if _, err := fmt.Fprintln(w, line+p.Message); err != nil {
			return err
		}
	}
	read := counted(a.Files, "file")
	if a.Cluster != "" {
		read = a.Cluster
	}
	_, err := fmt.Fprintf(w, "%s, %s: %s\n", read, counted(a.Objects, "object"), verdict(s, a))
	return err
}

func verdict(s terminal.Style, a analysis) string {
	switch {
	case a.nothing:
		return s.Warn("nothing to analyze")
	case len(a.Problems) == 0:
		return s.Good("no problems")
	}
	return fmt.Sprintf("%s, %s, %s", counted(a.Errors, "error"), counted(a.Warnings, "warning"), counted(a.Infos, "info"))
}

// counted is "1 file" or "2 files".
func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
