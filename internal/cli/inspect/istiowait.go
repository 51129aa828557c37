package inspect

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/terminal"
)

// NewIstioWaitCommand returns `moonsail experimental wait`, which is wait with istioctl's arguments and flags.
func NewIstioWaitCommand() *cobra.Command {
	var (
		f         waitFlags
		threshold float64
		verbose   bool
	)
	cmd := &cobra.Command{
		Use:   "wait KIND NAME[.NAMESPACE]",
		Short: "Wait until a change has reached the proxies, with the arguments of istioctl",
		Long:  "Wait until a share of the proxies have an object, as 'moonsail wait' does, which describes the exit statuses.",
		Example: `  # Wait for an object
  moonsail experimental wait virtualservice reviews.shop --threshold 0.99`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch f.forWhat {
			case "delete":
				return terminal.UsageError{Err: errors.New("--for=delete: not supported: use 'kubectl wait --for=delete', and then 'moonsail explain KIND/NAME' for the proxies")}
			case "distribution", "":
				if threshold <= 0 || threshold > 1 {
					return terminal.UsageError{Err: fmt.Errorf("--threshold %v: out of range: use a number above 0, up to 1", threshold)}
				}
				f.forWhat = fmt.Sprintf("distribution=%g%%", threshold*100)
			}
			kind, name := args[0], args[1]
			if dot := strings.LastIndexByte(name, '.'); dot >= 0 {
				name, f.object.Namespace = name[:dot], name[dot+1:]
			}
			return f.run(cmd, kind+"/"+name)
		},
	}
	f.addFlags(cmd)
	cmd.Flags().Float64Var(&threshold, "threshold", 1, "share of proxies to wait for, from 0 to 1")
	cmd.Flags().BoolVarP(&verbose, "verbose", "v", false, "without effect; for scripts")
	f.forWhat = "distribution"
	cmd.Flags().Lookup("for").DefValue = "distribution"
	cmd.Flags().Lookup("for").Usage = "what to wait for: distribution, or distribution=`P%`"
	return cmd
}
