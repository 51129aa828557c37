package cli

import (
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/analyze"
	"github.com/moonsail/moonsail/internal/istioapi"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/source/file"
)

// analysis is what "moonsail analyze" prints.
type analysis struct {
	Files    int               `json:"files"`
	Objects  int               `json:"objects"`
	Errors   int               `json:"errors"`
	Warnings int               `json:"warnings"`
	Infos    int               `json:"infos"`
	Problems istioapi.Problems `json:"problems"`
}

// NewAnalyzeCommand is "moonsail analyze".
func NewAnalyzeCommand() *cobra.Command {
	var (
		out    Output
		domain string
		level  = string(istioapi.SeverityInfo)
	)
	cmd := &cobra.Command{
		Use:   "analyze DIR|FILE",
		Short: "Say what is wrong in a directory of YAML",
		Long: `Reads Kubernetes and Istio objects from a directory tree of YAML and JSON, or from one
file, and says what is wrong with them, each with its file and line:

  error     the object is not used, or requests to it fail or go elsewhere
  warning   something has no effect, or not the one that was probably meant
  info      something could be said better

Single objects are checked as 'moonsail serve' checks them; then all of them against
each other: destinations, subsets, ports, hosts that are routed twice, rules that are
never used. The exit status is 1 where there are errors.`,
		Example: `  moonsail analyze config/
  moonsail analyze config/ --level warning
  moonsail analyze reviews.yaml -o json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			keep, err := severities(level)
			if err != nil {
				return usageError{err}
			}
			a, err := analyzePath(args[0], domain, keep)
			if err != nil {
				return &UserError{What: "cannot analyze", Where: args[0], Err: err, Next: "give a directory, or a file of YAML"}
			}
			err = out.Print(cmd.OutOrStdout(), a, func(w io.Writer) error { return printAnalysis(w, a) })
			if err == nil && a.Errors > 0 {
				return ExitCode(exitFailed)
			}
			return err
		},
	}
	out.AddFlag(cmd)
	cmd.Flags().StringVar(&domain, "domain", model.DefaultMesh().Domain, "DNS `DOMAIN` of the cluster")
	cmd.Flags().StringVar(&level, "level", level, "`LEVEL` from which on problems are told: info, warning or error")
	return cmd
}

// severities lists those that are at least as grave as level.
func severities(level string) ([]istioapi.Severity, error) {
	all := []istioapi.Severity{istioapi.SeverityError, istioapi.SeverityWarning, istioapi.SeverityInfo}
	i := slices.Index(all, istioapi.Severity(level))
	if i < 0 {
		return nil, fmt.Errorf("unknown level %q: it is one of info, warning, error", level)
	}
	return all[:i+1], nil
}

func analyzePath(path, domain string, keep []istioapi.Severity) (analysis, error) {
	tree, err := file.Analyze(path, istioapi.Decoder{Domain: domain})
	if err != nil {
		return analysis{}, err
	}
	across := analyze.Check(tree.Objects, domain)
	tree.Locate(across)
	all := append(tree.Problems, across...)
	all = slices.DeleteFunc(all, func(p istioapi.Problem) bool { return !slices.Contains(keep, p.Severity) })
	all.Sort()
	return analysis{
		Files: tree.Files, Objects: len(tree.Objects), Problems: append(istioapi.Problems{}, all...),
		Errors:   all.Count(istioapi.SeverityError),
		Warnings: all.Count(istioapi.SeverityWarning),
		Infos:    all.Count(istioapi.SeverityInfo),
	}, nil
}

// printAnalysis prints a problem a line, as compilers do, and a sum.
func printAnalysis(w io.Writer, a analysis) error {
	s := StyleFor(w)
	paint := map[istioapi.Severity]func(string) string{
		istioapi.SeverityError: s.Bad, istioapi.SeverityWarning: s.Warn, istioapi.SeverityInfo: s.Dim,
	}
	for _, p := range a.Problems {
		line := s.Bold(p.Where()) + ": " + paint[p.Severity](string(p.Severity)) + ": "
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
	_, err := fmt.Fprintf(w, "%s, %s: %s\n", counted(a.Files, "file"), counted(a.Objects, "object"), verdict(s, a))
	return err
}

func verdict(s Style, a analysis) string {
	if len(a.Problems) == 0 {
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
