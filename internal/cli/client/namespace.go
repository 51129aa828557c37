package client

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/terminal"
)

// Namespaces are the flags --namespace and --all-namespaces of commands that list. Without them, a list has all.
type Namespaces struct {
	Namespace string

	all bool
}

// AddFlags adds the flags to cmd. what is listed, for help: "proxies".
func (n *Namespaces) AddFlags(cmd *cobra.Command, plane *ControlPlane, what string) {
	cmd.Flags().StringVarP(&n.Namespace, "namespace", "n", "", "list only "+what+" of this `NAMESPACE` (default: all)")
	cmd.Flags().BoolVarP(&n.all, "all-namespaces", "A", false, "list "+what+" of all namespaces, as without --namespace")
	// The only error is a flag that does not exist.
	_ = cmd.RegisterFlagCompletionFunc("namespace", func(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return plane.objectNames(cmd.Context(), model.KindNamespace, ""), cobra.ShellCompDirectiveNoFileComp
	})
	cmd.PreRunE = func(*cobra.Command, []string) error { return n.check() }
}

func (n *Namespaces) check() error {
	if n.all && n.Namespace != "" {
		return terminal.UsageError{Err: errors.New("--namespace and --all-namespaces: give one of them")}
	}
	return nil
}

// Has reports whether a list has what is in a namespace.
func (n *Namespaces) Has(namespace string) bool { return n.Namespace == "" || n.Namespace == namespace }
