package cli

import (
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

// Names of the program as a plugin of kubectl. kubectl runs the second one to complete arguments. Both may be links to
// moonsail.
const (
	pluginName     = "kubectl-moonsail"
	completionName = "kubectl_complete-moonsail"
)

// asPlugin adapts the command tree to the name by which the process was started.
func asPlugin(root *cobra.Command, args []string) {
	name := strings.TrimSuffix(filepath.Base(args[0]), ".exe")
	switch name {
	case pluginName:
		root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl moonsail"}
	case completionName:
		root.SetArgs(append([]string{cobra.ShellCompRequestCmd}, args[1:]...))
	}
}
