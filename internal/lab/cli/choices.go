package cli

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/lab/choices"
	"github.com/moonsail/moonsail/internal/terminal"
)

// choicesFlags are the flags of "moonsail-lab choices".
type choicesFlags struct {
	experimentFlags
	options choices.Options
	own     []string
}

func (f *choicesFlags) command() *cobra.Command {
	d := choices.DefaultOptions()
	cmd := &cobra.Command{
		Use:   "choices",
		Short: "Measure the cost of each choice in a sidecar's configuration",
		Long: `Calls an application through two sidecars with mutual TLS and default configuration, and through
pairs of sidecars that each differ in one choice: HTTP/2 between them, TLS, buffers, windows,
retries, limits, statistics, logs. --own adds a choice of yours, for example an EnvoyFilter.

Choices: ` + strings.Join(d.Names(), "; ") + `.

Exit status: 0 measured, 1 failed, 2 wrong flags, 130 interrupted (complete rounds are reported).`,
		Example: `  moonsail-lab choices --quick
  moonsail-lab choices --out report/
  moonsail-lab choices --only buffers,windows,again
  moonsail-lab choices --only again --own mine=filter.yaml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.start(cmd) },
	}
	fs := cmd.Flags()
	addTerms(fs, &f.options.Terms, d.Terms)
	fs.StringSliceVar(&f.options.Only, "only", nil, "choices to measure, by the beginning of their `NAMES` (default: all)")
	fs.StringSliceVar(&f.own, "own", nil, "`NAME=FILE` of an additional choice: objects as YAML; $NAMESPACE stands for the pair's namespace")
	f.addFlags(cmd)
	return cmd
}

func (f *choicesFlags) start(cmd *cobra.Command) (err error) {
	o := f.options
	o.Quick = f.quick
	if o.Own, err = readOwn(f.own); err != nil {
		return err
	}
	if o.Programs, o.Envoy, err = f.programs(o.Check()); err != nil {
		return err
	}
	return f.run(cmd, choices.New(o))
}

// readOwn reads the files of --own.
func readOwn(list []string) (map[string]string, error) {
	out := map[string]string{}
	for _, x := range list {
		name, file, ok := strings.Cut(x, "=")
		if !ok || name == "" {
			return nil, terminal.UsageError{Err: fmt.Errorf("--own %s: use NAME=FILE", x)}
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, &terminal.UserError{What: "cannot read a choice", Where: "--own " + x, Err: err, Next: "name a YAML file"}
		}
		out[name] = string(text)
	}
	return out, nil
}
