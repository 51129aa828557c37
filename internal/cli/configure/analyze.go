// Package configure holds the commands that work on users' YAML: `moonsail analyze`, `moonsail compare`, `moonsail diff` and
// `moonsail inject`.
package configure

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/cli/client"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/source/file"
	"github.com/moonsail/moonsail/internal/source/kube"
	"github.com/moonsail/moonsail/internal/terminal"
)

// Commands returns the commands of this package.
func Commands() []*cobra.Command {
	return []*cobra.Command{newAnalyzeCommand(), newCompareCommand(), newDiffCommand(), newInjectCommand()}
}

// analyzeFlags are the values of the flags of `moonsail analyze`.
type analyzeFlags struct {
	out       terminal.Output
	domain    string
	root      string
	level     string
	fail      string
	empty     bool
	recursive bool
	namespace string
	change    []string
	all       bool
	explain   string
	suppress  []string
	patch     bool // --fix
	write     bool
	revision  string
	useKube   bool
	bounded   bool // the command line does not name the directory
	plane     client.ControlPlane
}

// analyzeHelp and analyzeExamples are the help of `moonsail analyze`.
const (
	analyzeHelp = `Check Kubernetes, Istio and Gateway API objects, and report problems with file and line. Objects come
from directory trees and files of YAML or JSON, from standard input (-), or from a Kubernetes API
server, which the command only reads.

  error     the object is not used, or requests to it fail or go elsewhere
  warning   something has no effect, or probably not the intended one
  info      a suggestion

The command checks each object as 'moonsail serve' does, and then all objects together:
destinations, subsets, ports, hosts that are routed twice, rules that never match. Several arguments
are one mesh, in which no object may be defined twice. Objects of -f CHANGE replace those of the
arguments, or of the cluster, with the same kind, namespace and name, as with 'kubectl apply'.

With --kubeconfig or --context, the cluster has everything else, and only problems of the files are
reported. Without arguments, the command checks the directory of the control plane at --address, or
the whole cluster of --kubeconfig, else of kubectl's files, else, in a Pod, its own. If there is none,
it checks the directory of the control plane on this machine.

Each message ends with its code. --explain CODE describes cause and remedy. --suppress, or the
annotation galley.istio.io/analyze-suppress of an object, with a list of codes or *, leaves it out.
Codes of istioctl analyze (IST0101) are taken, too.

With --fix, the command prints a patch with the corrections that it is sure of. 'git apply' applies it
to files below the current directory. With --write, the command changes the files itself. It changes only
files that the command line names, and those below the directories that it names, but not behind links out
of them. The exit status is about the problems that are left.

Exit status: 0 no errors, 1 errors (see --failure-threshold), or no objects (see --allow-empty),
2 wrong usage.`
	analyzeExamples = `  # Check a directory
  moonsail analyze config/

  # Report only errors and warnings
  moonsail analyze config/ --level warning

  # Annotate a pull request of GitHub, and fail on warnings too
  moonsail analyze config/ -o github --failure-threshold warning

  # Check the result of a program
  kubectl kustomize overlays/prod | moonsail analyze -

  # Check files against what the cluster has
  moonsail analyze route.yaml --context prod

  # Check a directory as it would be with a change
  moonsail analyze config/ -f canary.yaml

  # Check a cluster
  moonsail analyze

  # Read the corrections, and make them
  moonsail analyze config/ --fix
  moonsail analyze config/ --fix --write

  # Look up a code, and suppress it for the routes of a namespace
  moonsail analyze --explain MS1204
  moonsail analyze config/ --suppress 'MS1204=VirtualService/*.shop'
`
)

func newAnalyzeCommand() *cobra.Command {
	var f analyzeFlags
	cmd := &cobra.Command{
		Use:     "analyze [DIR|FILE|-]... [-f CHANGE]...",
		Short:   "Check a directory of YAML, or a cluster",
		Long:    analyzeHelp,
		Example: analyzeExamples,
		Args:    cobra.ArbitraryArgs,
		RunE:    func(cmd *cobra.Command, args []string) error { return f.run(cmd, args) },
	}
	f.addFlags(cmd)
	cmd.Flags().StringArrayVarP(&f.change, "filename", "f", nil, "`FILE` or directory with objects that replace others; - is standard input; may be repeated")
	return cmd
}

func (f *analyzeFlags) addFlags(cmd *cobra.Command) {
	f.out.AddFlagWith(cmd, formatGitHub, formatSARIF)
	mesh, fs := model.DefaultMesh(), cmd.Flags()
	fs.StringVar(&f.domain, "domain", mesh.Domain, "DNS `DOMAIN` of the cluster")
	fs.StringVar(&f.root, "root-namespace", mesh.RootNamespace, "`NAMESPACE` of MeshConfig and of mesh-wide defaults")
	fs.StringVar(&f.level, "level", string(problem.SeverityInfo), "lowest `LEVEL` to report: info, warning or error")
	terminal.Offer(cmd, "level", levels...)
	fs.StringVar(&f.fail, "failure-threshold", string(problem.SeverityError), "lowest `LEVEL` of a reported problem that makes the command fail: info, warning or error")
	terminal.Offer(cmd, "failure-threshold", levels...)
	fs.BoolVar(&f.empty, "allow-empty", false, "exit with 0 if there are no objects")
	fs.BoolVarP(&f.recursive, "recursive", "R", true, "read the folders inside of directories, too")
	fs.StringVarP(&f.namespace, "namespace", "n", "", "report only objects of this `NAMESPACE`; objects of files without a namespace are of it")
	fs.BoolVarP(&f.all, "all-namespaces", "A", false, "report objects of all namespaces (the default)")
	fs.StringArrayVarP(&f.suppress, "suppress", "S", nil, "leave out a message: `CODE`, or CODE=KIND/NAME.NAMESPACE, with * for any text; may be repeated")
	fs.BoolVar(&f.patch, "fix", false, "print a patch with the obvious corrections of files, instead of the problems: misspelt names and values, quotes, slashes")
	fs.BoolVarP(&f.write, "write", "w", false, "with --fix: change the files")
	fs.StringVarP(&f.revision, "revision", "r", "", "check the objects for this `REVISION`, with its MeshConfig (default: all objects, with the MeshConfig istio)")
	fs.StringVar(&f.explain, "explain", "", "print the description of a `CODE`, or of all codes (all), and end")
	_ = cmd.RegisterFlagCompletionFunc("explain", completeCodes) // the only error is a flag that does not exist
	fs.StringVar(&f.level, "output-threshold", string(problem.SeverityInfo), "istioctl's name for --level")
	fs.BoolVarP(&f.useKube, "use-kube", "k", false, "check files against the cluster of kubectl's files, too")
	for _, name := range []string{"output-threshold", "use-kube"} {
		_ = fs.MarkHidden(name) // the only error is a flag that does not exist
	}
	fs.StringVar(&f.plane.Address, "address", "", "`ADDRESS` of a control plane on this machine whose directory to check, as host:port or a URL (default: "+client.DefaultAddress+" if no cluster is known)")
	terminal.EnvFlag(cmd, "address", client.AddressEnv)
	f.plane.Cluster.AddFlags(cmd)
}

// levels are the values of --level.
var levels = []string{string(problem.SeverityInfo), string(problem.SeverityWarning), string(problem.SeverityError)}

// selection is which problems are reported, and which of them fail.
type selection struct {
	keep, failing []problem.Severity
	namespace     string // "": all
	suppressed    []suppression
}

func (f *analyzeFlags) selection() (s selection, err error) {
	if s.keep, err = severities("level", f.level); err != nil {
		return s, err
	}
	if s.failing, err = severities("failure-threshold", f.fail); err != nil {
		return s, err
	}
	if f.all && f.namespace != "" {
		return s, errors.New("--namespace and --all-namespaces exclude each other: give one of them")
	}
	if f.write && !f.patch {
		return s, errors.New("--write needs --fix: give both")
	}
	s.namespace = f.namespace
	for _, text := range f.suppress {
		one, err := parseSuppression(text)
		if err != nil {
			return s, fmt.Errorf("--suppress %q: %w", text, err)
		}
		s.suppressed = append(s.suppressed, one)
	}
	return s, nil
}

func (f *analyzeFlags) run(cmd *cobra.Command, args []string) error {
	if f.explain != "" {
		return explainCode(cmd.OutOrStdout(), f.explain)
	}
	s, err := f.selection()
	if err != nil {
		return terminal.UsageError{Err: err}
	}
	read := slices.Concat(args, f.change)
	if f.patch && (len(args)+len(f.change) == 0 || f.write && slices.Contains(read, file.Stdin)) {
		return terminal.UsageError{Err: errors.New("--fix changes files: name them, and print the patch of standard input without --write")}
	}
	args, source, cluster, err := f.choose(cmd.Context(), args)
	if err != nil {
		return err
	}
	var stdin []byte
	if slices.Contains(read, file.Stdin) {
		if stdin, err = io.ReadAll(cmd.InOrStdin()); err != nil {
			return &terminal.UserError{Where: "standard input", Err: err, Next: "write YAML or JSON of objects to it"}
		}
	}
	var a analysis
	if cluster != nil {
		progress := terminal.StartProgress(cmd.ErrOrStderr(), "reading the cluster")
		a, err = f.analyzeCluster(cmd.Context(), *cluster, stdin, args, s)
		progress.Done()
	} else {
		a, err = f.analyzeFiles(stdin, args, s)
		a.Source = source
	}
	if err != nil {
		return err
	}
	if f.patch {
		if a.Problems, err = f.fix(cmd.OutOrStdout(), cmd.ErrOrStderr(), a, stdin, read); err != nil {
			return err
		}
	} else if err := f.print(cmd.OutOrStdout(), a); err != nil {
		return err
	}
	if a.nothing && !f.empty {
		return noObjects(slices.Concat(args, f.change))
	}
	if slices.ContainsFunc(a.Problems, func(p problem.Problem) bool { return slices.Contains(s.failing, p.Severity) }) {
		return terminal.ExitCode(terminal.ExitFailed)
	}
	return nil
}

// choose returns the files and the cluster to read; nil: none. Without files, that is the directory of a control plane, which source
// names, or the cluster. Files are checked against a cluster only if a flag names one.
func (f *analyzeFlags) choose(ctx context.Context, args []string) (files []string, source string, cluster *kube.Cluster, err error) {
	chosen := f.useKube || f.plane.Kubeconfig != "" || f.plane.Context != ""
	if f.plane.AddressGiven() && (chosen || len(args) > 0) {
		return nil, "", nil, terminal.UsageError{Err: errors.New("--address excludes files, --kubeconfig and --context: give either")}
	}
	if !chosen && len(args) > 0 {
		return args, "", nil, nil
	}
	if !chosen {
		dir, where, err := f.plane.ConfigDir(ctx)
		if err != nil {
			return nil, "", nil, err
		}
		if dir != "" {
			source, f.bounded = dir+", the directory of "+where, true
			if len(f.change) > 0 {
				source += ", with the change"
			}
			return []string{dir}, source, nil, nil
		}
	}
	access, known := f.plane.Default()
	if !known {
		return nil, "", nil, terminal.UsageError{Err: errors.New("no configuration: give a directory or file, or --kubeconfig (not needed in a Pod), or run a control plane on this machine")}
	}
	return args, "", &access, nil
}

// print writes the answer in the chosen format.
func (f *analyzeFlags) print(w io.Writer, a analysis) error {
	switch {
	case f.out.Is(formatGitHub):
		return printGitHub(w, a.Problems)
	case f.out.Is(formatSARIF):
		return printSARIF(w, a.Problems)
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
	i := slices.Index(all, problem.Severity(strings.ToLower(level))) // istioctl writes Warning
	if i < 0 {
		return nil, fmt.Errorf("--%s %q: unknown level: use info, warning or error", flag, level)
	}
	return all[:i+1], nil
}
