package install

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/moonsail/moonsail/internal/cli/client"
	"github.com/moonsail/moonsail/internal/source/kube"
	"github.com/moonsail/moonsail/internal/terminal"
)

// objects is the access to a cluster.
type objects interface {
	Get(ctx context.Context, r schema.GroupVersionResource, namespace, name string) (*unstructured.Unstructured, error)
	List(ctx context.Context, r schema.GroupVersionResource, namespace, selector string) ([]unstructured.Unstructured, error)
	Named(ctx context.Context, r schema.GroupVersionResource, name string) ([]unstructured.Unstructured, error)
	Apply(ctx context.Context, r schema.GroupVersionResource, o *unstructured.Unstructured, dryRun bool) (*unstructured.Unstructured, error)
	Share(ctx context.Context, r schema.GroupVersionResource, o *unstructured.Unstructured, manager string) error
	Update(ctx context.Context, r schema.GroupVersionResource, o *unstructured.Unstructured) (*unstructured.Unstructured, error)
	Delete(ctx context.Context, r schema.GroupVersionResource, namespace, name string) error
	Count(ctx context.Context, r schema.GroupVersionResource) (int, error)
	Allowed(ctx context.Context, verb string, r schema.GroupVersionResource, namespace string) (bool, error)
	Version(ctx context.Context) (string, error)
}

// fieldManager owns the fields that these commands write.
const fieldManager = "moonsail-install"

// clusterFlags holds the flags that choose a cluster, with the defaults of kubectl.
type clusterFlags struct{ client.Cluster }

func (a *clusterFlags) addFlags(cmd *cobra.Command) {
	a.AddFlags(cmd)
	a.Rights = "use an account with the ClusterRole cluster-admin; 'moonsail precheck' lists what is missing"
	cmd.Flags().Lookup("kubeconfig").Usage = "kubeconfig `FILE` of the cluster (default: $KUBECONFIG, else ~/.kube/config, else in a Pod: that cluster)"
}

// connect returns the objects of the cluster. It sends no request yet. The caller must call done.
func (a *clusterFlags) connect() (o objects, done func(), err error) {
	cluster, known := a.Default()
	if !known {
		return nil, nil, terminal.UsageError{Err: errors.New("no cluster: give --kubeconfig, or set KUBECONFIG")}
	}
	c, err := kube.Connect(cluster)
	if err != nil {
		return nil, nil, a.Explain(err)
	}
	all, err := kube.NewObjects(c, fieldManager)
	if err != nil {
		c.Close()
		return nil, nil, a.Explain(err)
	}
	return all, c.Close, nil
}

// refused explains an error of the API server about one object. verb is a word for users, such as apply, read or delete.
func refused(verb string, o *unstructured.Unstructured, err error) error {
	e := &terminal.UserError{What: "cannot " + verb + " the object", Where: titleOf(o), Err: err}
	switch {
	case apierrors.IsForbidden(err):
		e.Next = "use an account with the ClusterRole cluster-admin; 'moonsail precheck' lists what is missing"
	case apierrors.IsNotFound(err):
		e.Next = fmt.Sprintf("install the kind %s of %s, or leave the object out with --set", o.GetKind(), o.GroupVersionKind().Group)
	case errors.Is(err, context.DeadlineExceeded):
		e.Next = "raise --timeout"
	case apierrors.IsInvalid(err):
		e.Next = "correct the values; for an immutable field, run 'moonsail uninstall' first"
	}
	return e
}
