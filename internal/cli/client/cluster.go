package client

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/moonsail/moonsail/internal/source/kube"
	"github.com/moonsail/moonsail/internal/terminal"
	"github.com/moonsail/moonsail/internal/version"
)

// Cluster holds the flags that choose an API server.
type Cluster struct {
	kube.Cluster
	Rights string // what to do without the right to a request; empty: grant those of a control plane
}

// AddFlags adds --kubeconfig and --context to cmd.
func (c *Cluster) AddFlags(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&c.Kubeconfig, "kubeconfig", "", "kubeconfig `FILE` of a Kubernetes cluster (default in a Pod: that cluster)")
	fs.StringVar(&c.Context, "context", "", "`NAME` of the kubeconfig's context (default: its current one)")
	_ = cmd.MarkFlagFilename("kubeconfig") // the only error is a flag that does not exist
	terminal.RepeatInHints(cmd, "kubeconfig", "context")
}

// Choose returns the cluster to read, or nil if files are given instead. files is the flag or argument that names
// them.
func (c *Cluster) Choose(files string, given bool) (*kube.Cluster, error) {
	switch {
	case given && c.Kubeconfig != "":
		return nil, terminal.UsageError{Err: fmt.Errorf("%s and --kubeconfig exclude each other: give one of them", files)}
	case c.Kubeconfig == "" && c.Context != "":
		return nil, terminal.UsageError{Err: errors.New("--context needs a kubeconfig: give --kubeconfig too")}
	case given:
		return nil, nil
	case c.Kubeconfig == "" && !kube.InCluster():
		return nil, terminal.UsageError{Err: fmt.Errorf("no configuration: give %s, or --kubeconfig (not needed in a Pod)", files)}
	}
	chosen := c.Cluster
	chosen.UserAgent = userAgent()
	return &chosen, nil
}

// Default returns the cluster that kubectl would use, if any is known: that of the flags, of the user's files, or of this Pod.
func (c *Cluster) Default() (access kube.Cluster, known bool) {
	if c.Kubeconfig == "" {
		c.Files = kube.UserFiles()
	}
	c.UserAgent = userAgent()
	return c.Cluster, c.Kubeconfig != "" || len(c.Files) > 0 || kube.InCluster()
}

func userAgent() string { return "moonsail/" + version.Get().Version }

// Explain adds the flag and the next step to an error of an API server.
func (c *Cluster) Explain(err error) error {
	where, check := "--kubeconfig "+c.Kubeconfig, "check with 'kubectl --kubeconfig "+c.Kubeconfig+" get namespaces'"
	switch {
	case c.Kubeconfig != "":
	case len(c.Files) > 0:
		where, check = "kubeconfig "+strings.Join(c.Files, string(filepath.ListSeparator)), "check with 'kubectl get namespaces'"
	default:
		where, check = "this Pod's service account", "check that Pods reach the API server, and see its logs"
	}
	const name = "name the file that kubectl uses, for example ~/.kube/config"
	if strings.Contains(err.Error(), "couldn't get version/kind") { // client-go's text names Go types
		return &terminal.UserError{What: "not a kubeconfig", Where: where, Next: name}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return &terminal.UserError{What: "no such file", Where: where, Next: name}
	}
	next := check
	if apierrors.IsForbidden(err) {
		next = cmp.Or(c.Rights, "grant this user the rights of the ClusterRole moonsail (see 'moonsail manifest'), or use another --kubeconfig")
	}
	return &terminal.UserError{What: "cannot use this cluster", Where: where, Err: err, Next: next}
}
