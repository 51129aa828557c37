package client

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/config/spelling"
	"github.com/moonsail/moonsail/internal/controlplane/debug"
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
	plane.CompleteNamespace(cmd)
	plane.checks = append(plane.checks, func(ctx context.Context) { plane.noteUnknown(ctx, n.Namespace) })
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

// CompleteNamespace completes --namespace of cmd with the namespaces that the control plane knows.
func (c *ControlPlane) CompleteNamespace(cmd *cobra.Command) {
	_ = cmd.RegisterFlagCompletionFunc("namespace", c.completeNamespace) // the only error is a flag that does not exist
}

// completeNamespace completes a flag with the namespaces that the control plane knows.
func (c *ControlPlane) completeNamespace(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	known, _ := c.namespaces(cmd.Context(), "") // what is known until an error
	return slices.Sorted(maps.Keys(known)), cobra.ShellCompDirectiveNoFileComp
}

// noteUnknown adds a note if the control plane has no object in a namespace. It is not an error, as in kubectl.
func (c *ControlPlane) noteUnknown(ctx context.Context, namespace string) {
	if namespace == "" {
		return
	}
	known, err := c.namespaces(ctx, namespace)
	if err != nil || known[namespace] {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.note("namespace %q: the control plane knows nothing in it%s", namespace, spelling.DidYouMean(namespace, slices.Collect(maps.Keys(known))))
}

// namespaces returns the namespaces that the control plane knows: Namespaces, and those of proxies, Services and Pods, as directories
// of YAML may have no Namespaces. It stops early if it finds the wanted one.
func (c *ControlPlane) namespaces(ctx context.Context, wanted string) (map[string]bool, error) {
	known := map[string]bool{}
	for _, kind := range []model.Kind{model.KindNamespace, model.KindService, model.KindPod} {
		list, err := c.Objects(ctx, kind)
		if err != nil {
			return known, err
		}
		for _, o := range list {
			if kind == model.KindNamespace {
				known[o.Name] = true
			} else {
				known[o.Namespace] = true
			}
		}
		if known[wanted] {
			return known, nil
		}
	}
	var proxies debug.ProxyList
	err := c.Get(ctx, "/debug/proxies", &proxies)
	for i := range proxies.Proxies {
		known[proxies.Proxies[i].Namespace] = true
	}
	return known, err
}
