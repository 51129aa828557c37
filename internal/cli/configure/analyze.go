// Package configure holds the commands that work on users' YAML: `moonsail analyze` and `moonsail inject`.
package configure

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

	"github.com/moonsail/moonsail/internal/cli/client"
	"github.com/moonsail/moonsail/internal/config"
	"github.com/moonsail/moonsail/internal/config/analyze"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/source/file"
	"github.com/moonsail/moonsail/internal/source/kube"
	"github.com/moonsail/moonsail/internal/terminal"
)

// Commands returns the commands of this package.
func Commands() []*cobra.Command {
	return []*cobra.Command{newAnalyzeCommand(), newInjectCommand()}
}

// analysis is the result of `moonsail analyze`.
type analysis struct {
	Files    int          `json:"files"`
	Cluster  string       `json:"cluster,omitempty"` // the API server, if there are no files
	Objects  int          `json:"objects"`
	Errors   int          `json:"errors"`
	Warnings int          `json:"warnings"`
	Infos    int          `json:"infos"`
	Problems problem.List `json:"problems"`

	nothing bool // the files have no objects
}

// analyzeFlags are the values of the flags of `moonsail analyze`.
type analyzeFlags struct {
	out     terminal.Output
	domain  string
	root    string
	level   string
	fail    string
	empty   bool
	cluster client.Cluster
}

func newAnalyzeCommand() *cobra.Command {
	var f analyzeFlags
	cmd := &cobra.Command{
		Use:   "analyze [DIR|FILE|-]...",
		Short: "Check a directory of YAML, or a cluster",
		Long: `Check Kubernetes, Istio and Gateway API objects, and report problems with file and line. Objects come
from directory trees and files of YAML or JSON, from standard input (-), or from a Kubernetes API
server, which the command only reads.

  error     the object is not used, or requests to it fail or go elsewhere
  warning   something has no effect, or probably not the intended one
  info      a suggestion

The command checks each object as 'moonsail serve' does, and then all objects together:
destinations, subsets, ports, hosts that are routed twice, rules that never match. Several arguments
are one mesh. Without arguments, the command checks the cluster of --kubeconfig, else of $KUBECONFIG,
else, in a Pod, its own.

Exit status: 0 no errors, 1 errors (see --failure-threshold), or no objects (see --allow-empty),
2 wrong usage.`,
		Example: `  # Check a directory
  moonsail analyze config/

  # Report only errors and warnings
  moonsail analyze config/ --level warning

  # Annotate a pull request of GitHub, and fail on warnings too
  moonsail analyze config/ -o github --failure-threshold warning

  # Check the result of a program
  kubectl kustomize overlays/prod | moonsail analyze -

  # Check a cluster
  moonsail analyze --kubeconfig ~/.kube/config`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args) },
	}
	f.out.AddFlagWith(cmd, formatGitHub)
	mesh := model.DefaultMesh()
	cmd.Flags().StringVar(&f.domain, "domain", mesh.Domain, "DNS `DOMAIN` of the cluster")
	cmd.Flags().StringVar(&f.root, "root-namespace", mesh.RootNamespace, "`NAMESPACE` of MeshConfig and of mesh-wide defaults")
	cmd.Flags().StringVar(&f.level, "level", string(problem.SeverityInfo), "lowest `LEVEL` to report: info, warning or error")
	terminal.Offer(cmd, "level", levels...)
	cmd.Flags().StringVar(&f.fail, "failure-threshold", string(problem.SeverityError), "lowest `LEVEL` of a reported problem that makes the command fail: info, warning or error")
	terminal.Offer(cmd, "failure-threshold", levels...)
	cmd.Flags().BoolVar(&f.empty, "allow-empty", false, "exit with 0 if there are no objects")
	f.cluster.AddFlags(cmd)
	return cmd
}

// levels are the values of --level.
var levels = []string{string(problem.SeverityInfo), string(problem.SeverityWarning), string(problem.SeverityError)}

func (f *analyzeFlags) run(cmd *cobra.Command, args []string) error {
	keep, err := severities("level", f.level)
	if err != nil {
		return terminal.UsageError{Err: err}
	}
	failing, err := severities("failure-threshold", f.fail)
	if err != nil {
		return terminal.UsageError{Err: err}
	}
	if len(args) == 0 && f.cluster.Kubeconfig == "" {
		f.cluster.Kubeconfig = os.Getenv("KUBECONFIG") // as kubectl and istioctl do
	}
	cluster, err := f.cluster.Choose("a directory or file", len(args) > 0)
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
	if err := f.print(cmd.OutOrStdout(), a); err != nil {
		return err
	}
	if a.nothing && !f.empty {
		return noObjects(args)
	}
	if slices.ContainsFunc(a.Problems, func(p problem.Problem) bool { return slices.Contains(failing, p.Severity) }) {
		return terminal.ExitCode(terminal.ExitFailed)
	}
	return nil
}

// print writes the answer in the chosen format.
func (f *analyzeFlags) print(w io.Writer, a analysis) error {
	if f.out.Is(formatGitHub) {
		return printGitHub(w, a.Problems)
	}
	return f.out.Print(w, a, func(w io.Writer) error { return printAnalysis(w, a) })
}

// noObjects returns the error for files, directories or a standard input without objects.
func noObjects(args []string) error {
	if len(args) == 1 && args[0] == file.Stdin {
		return &terminal.UserError{What: "no objects", Where: "standard input",
			Next: "write YAML or JSON of objects to it, or allow none with --allow-empty"}
	}
	return &terminal.UserError{What: "no objects", Where: strings.Join(args, " "),
		Next: "name files with objects that end in .yaml, .yml or .json, or allow none with --allow-empty"}
}

// severities returns the severities from level up. flag names the flag in errors.
func severities(flag, level string) ([]problem.Severity, error) {
	all := []problem.Severity{problem.SeverityError, problem.SeverityWarning, problem.SeverityInfo}
	i := slices.Index(all, problem.Severity(level))
	if i < 0 {
		return nil, fmt.Errorf("--%s %q: unknown level: use info, warning or error", flag, level)
	}
	return all[:i+1], nil
}

// analyzeFiles checks directories, files, and standard input.
func (f *analyzeFlags) analyzeFiles(stdin io.Reader, paths []string, keep []problem.Severity) (analysis, error) {
	tree, err := file.AnalyzeAll(config.Decoder{Domain: f.domain}, stdin, paths...)
	if err != nil {
		e := &terminal.UserError{What: "cannot read the objects", Where: strings.Join(paths, " "), Err: err, Next: "give a directory, a file of YAML, or - for standard input"}
		var at *fs.PathError
		if errors.As(err, &at) {
			e.Where, e.Err = at.Path, at.Err
		}
		return analysis{}, e
	}
	across := analyze.CheckAll(analyze.Input{Objects: tree.Objects, Templates: tree.Templates, Raw: tree.Raw, Files: true}, f.domain)
	tree.Locate(across)
	all := append(tree.Problems, across...)
	a := newAnalysis(all, keep)
	a.Files, a.Objects, a.nothing = tree.Files, len(tree.Objects), tree.Documents == 0 && len(all) == 0
	return a, nil
}

func (f *analyzeFlags) analyzeCluster(ctx context.Context, c kube.Cluster, keep []problem.Severity) (analysis, error) {
	client, err := kube.Connect(c)
	if err != nil {
		return analysis{}, f.cluster.Explain(err)
	}
	defer client.Close()
	decoder := config.Decoder{Domain: f.domain}
	content, err := client.Read(ctx, decoder, f.root)
	if err == nil {
		err = client.ReadCredentials(ctx, decoder, content)
	}
	if err != nil {
		return analysis{}, f.cluster.Explain(err)
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

// printAnalysis prints one line for each problem, as compilers do, and the counts.
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
			line += userKey(p.Object).String() + ": "
		}
		if p.Field != "" {
			line += s.Dim(p.Field) + ": "
		}
		if _, err := fmt.Fprintln(w, line+p.Message); err != nil {
			return err
		}
	}
	read := terminal.Count(a.Files, "file")
	if a.Cluster != "" {
		read = a.Cluster
	}
	_, err := fmt.Fprintf(w, "%s, %s: %s\n", read, terminal.Count(a.Objects, "object"), verdict(s, a))
	return err
}

// userKey returns a key with the kind that users write.
func userKey(k model.Key) model.Key {
	if k.Kind == model.KindKubernetesGateway {
		k.Kind = model.KindGateway
	}
	return k
}

func verdict(s terminal.Style, a analysis) string {
	switch {
	case a.nothing:
		return s.Warn("no objects to check")
	case len(a.Problems) == 0:
		return s.Good("no problems")
	}
	return fmt.Sprintf("%s, %s, %s", terminal.Count(a.Errors, "error"), terminal.Count(a.Warnings, "warning"), terminal.Count(a.Infos, "info"))
}
