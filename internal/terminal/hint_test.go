package terminal

import (
	"bytes"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

// TestHints checks that the commands of hints ask where the failed command asked, and have the name by which it was called.
func TestHints(t *testing.T) {
	for name, c := range map[string]struct {
		args         []string
		next, want   string
		display, env string
	}{
		"nothing chosen":        {args: []string{"fail"}, next: "see 'moonsail list'", want: "see 'moonsail list'"},
		"an address":            {args: []string{"fail", "--address", "h:1"}, next: "see 'moonsail list x -n shop' for all", want: "see 'moonsail list x -n shop --address h:1' for all"},
		"in another form":       {args: []string{"fail", "--address=h:1"}, next: "'moonsail list'", want: "'moonsail list --address h:1'"},
		"several flags":         {args: []string{"fail", "-i", "mesh", "--address", "h"}, next: "'moonsail list'", want: "'moonsail list --address h --in mesh'"},
		"it has the flag":       {args: []string{"fail", "-i", "mesh", "--address", "h"}, next: "'moonsail list -i x --address=y'", want: "'moonsail list -i x --address=y'"},
		"words for a shell":     {args: []string{"fail", "--address", `a b"$c`}, next: "'moonsail list'", want: `'moonsail list --address "a b\"\$c"'`},
		"history of a shell":    {args: []string{"fail", "--address", "a!b"}, next: "'moonsail list'", want: `'moonsail list --address "a"\!"b"'`},
		"a password":            {args: []string{"fail", "--address", "http://user:hunter2@h:1/"}, next: "'moonsail list'", want: "'moonsail list --address http://h:1/'"},
		"after an apostrophe":   {args: []string{"fail", "--address", "h"}, next: "see Envoy's messages with 'moonsail list x'; the object's status", want: "see Envoy's messages with 'moonsail list x --address h'; the object's status"},
		"an apostrophe, plugin": {args: []string{"fail"}, display: "kubectl moonsail", next: "see Envoy's messages with 'moonsail list x'", want: "see Envoy's messages with 'kubectl moonsail list x'"},
		"a flag that it lacks":  {args: []string{"fail", "--address", "h"}, next: "'moonsail check DIR'", want: "'moonsail check DIR'"},
		"a flag of each alone":  {args: []string{"fail", "--own", "1"}, next: "'moonsail list'", want: "'moonsail list'"},
		"help":                  {args: []string{"fail", "--address", "h"}, next: "see 'moonsail list --help'", want: "see 'moonsail list --help'"},
		"a pipe":                {args: []string{"fail", "--address", "h"}, next: "'moonsail list | kubectl delete -f -'", want: "'moonsail list | kubectl delete -f -'"},
		"another program":       {args: []string{"fail", "--address", "h"}, next: "'helm list' and 'moonsail list'", want: "'helm list' and 'moonsail list --address h'"},
		"no command":            {args: []string{"fail", "--address", "h"}, next: "use the command 'moonsail' of it", want: "use the command 'moonsail' of it"},
		"an unknown command":    {args: []string{"fail", "--address", "h"}, next: "'moonsail unknown'", want: "'moonsail unknown'"},
		"by a variable":         {args: []string{"fail"}, env: "h:2", next: "'moonsail list'", want: "'moonsail list'"},
		"as a plugin":           {args: []string{"fail", "--address", "h"}, display: "kubectl moonsail", next: "'moonsail list'", want: "'kubectl moonsail list --address h'"},
		"the next of an answer": {args: []string{"fail", "--address", "h"}, next: "run 'moonsail check DIR' or 'moonsail list'", want: "run 'moonsail check DIR' or 'moonsail list --address h'"},
	} {
		t.Run(name, func(t *testing.T) {
			root := newRoot()
			if c.display != "" {
				root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: c.display}
			}
			if c.env != "" {
				t.Setenv("MOONSAIL_ADDRESS", c.env)
			}
			fail := func(cmd *cobra.Command, _ []string) error { return &UserError{What: "no", Next: c.next} }
			for _, name := range []string{"fail", "list"} {
				cmd := &cobra.Command{Use: name, RunE: fail}
				cmd.Flags().String("address", "", "")
				cmd.Flags().StringP("in", "i", "", "")
				cmd.Flags().String("own", "", "")
				EnvFlag(cmd, "address", "MOONSAIL_ADDRESS")
				RepeatInHints(cmd, "address", "in")
				root.AddCommand(cmd)
			}
			root.AddCommand(&cobra.Command{Use: "check", RunE: fail})
			var errOut bytes.Buffer
			root.SetErr(&errOut)
			root.SetArgs(c.args)
			require.Equal(t, ExitFailed, Run(t.Context(), root))
			require.Equal(t, "error: no\n  next:  "+c.want+"\n", errOut.String())
		})
	}
}
