package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/moonsail/moonsail/internal/source/kube"
	"github.com/moonsail/moonsail/internal/terminal"
	"github.com/moonsail/moonsail/internal/version"
)

// kubeFlags say which API server to read.
type kubeFlags struct {
	cluster kube.Cluster
}

func (f *kubeFlags) add(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&f.cluster.Kubeconfig, "kubeconfig", "", "`FILE` with access to a Kubernetes cluster (default in a Pod: that cluster)")
	fs.StringVar(&f.cluster.Context, "context", "", "`NAME` of the kubeconfig's context (default: its current one)")
	// The only error is a flag that does not exist.
	_ = cmd.MarkFlagFilename("kubeconfig")
}

// choose gives the cluster to read, or nil where files are. other is the flag or argument
// that names files, given where it is set.
func (f *kubeFlags) choose(other string, given bool) (*kube.Cluster, error) {
	switch {
	case given && f.cluster.Kubeconfig != "":
		return nil, terminal.UsageError{Err: fmt.Errorf("%s and --kubeconfig are two sources; give one of them", other)}
	case f.cluster.Kubeconfig == "" && f.cluster.Context != "":
		return nil, terminal.UsageError{Err: errors.New("--context is one of a kubeconfig: give --kubeconfig too")}
	case given:
		return nil, nil
	case f.cluster.Kubeconfig == "" && !kube.InCluster():
		return nil, terminal.UsageError{Err: fmt.Errorf("no configuration: give %s, or --kubeconfig with a file (in a Pod of a cluster neither is needed)", other)}
	}
	c := f.cluster
	c.UserAgent = "moonsail/" + version.Get().Version
	return &c, nil
}

// explainKube says what to do about why a cluster could not be read.
func (f *kubeFlags) explainKube(err error) error {
	where := "--kubeconfig " + f.cluster.Kubeconfig
	if f.cluster.Kubeconfig == "" {
		where = "this Pod's service account"
	}
	if strings.Contains(err.Error(), "couldn't get version/kind") { // client-go tells Go's types then
		return &terminal.UserError{What: "not a kubeconfig", Where: where, Next: "name the file that kubectl uses, for example ~/.kube/config"}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return &terminal.UserError{What: "no such file", Where: where, Next: "name the file that kubectl uses, for example ~/.kube/config"}
	}
	next := "check with 'kubectl --kubeconfig FILE get namespaces'"
	if apierrors.IsForbidden(err) {
		next = "give this user the ClusterRole moonsail of deploy/rbac.yaml, or use another one's --kubeconfig"
	}
	return &terminal.UserError{What: "this cluster cannot be used", Where: where, Err: err, Next: next}
}
