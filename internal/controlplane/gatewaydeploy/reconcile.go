package gatewaydeploy

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/moonsail/moonsail/internal/config/gatewayapi"
	"github.com/moonsail/moonsail/internal/controlplane/status"
	"github.com/moonsail/moonsail/internal/model"
)

// Resources that are read.
var (
	gateways       = schema.GroupVersionResource{Group: gatewayapi.Group, Version: "v1", Resource: "gateways"}
	gatewayClasses = schema.GroupVersionResource{Group: gatewayapi.Group, Version: "v1", Resource: "gatewayclasses"}
	configMaps     = corev1.SchemeGroupVersion.WithResource("configmaps")
)

func (t *term) objects(k *kind, namespace string) dynamic.ResourceInterface {
	return t.dynamic.Resource(k.resource).Namespace(namespace)
}

// reconcile gives a Gateway its objects, or creates a GatewayClass. again is set if it should be tried again without an
// error to log.
func (t *term) reconcile(ctx context.Context, n types.NamespacedName) (again bool, err error) {
	if n.Namespace == "" {
		return false, t.createClass(ctx, n.Name)
	}
	o, err := t.dynamic.Resource(gateways).Namespace(n.Namespace).Get(ctx, n.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		t.report(model.Key{Kind: model.KindKubernetesGateway, Namespace: n.Namespace, Name: n.Name}, nil)
		t.inventory.dropWritten()
		return false, nil
	case err != nil:
		return false, err
	}
	g, err := readGateway(o)
	if err != nil {
		return false, err
	}
	if !t.handles(g) || !t.Snapshot().InMesh(g.Namespace, t.RootNamespace) || g.DeletionTimestamp != nil {
		t.report(g.key(), nil)
		return false, nil // another control plane, perhaps of another mesh, keeps its objects, or Kubernetes deletes them
	}
	if !g.deployed() {
		t.report(g.key(), nil)
		t.inventory.keepWritten(g.UID, nil)
		return retry(t.prune(ctx, g.UID, nil))
	}
	return t.deploy(ctx, g)
}

// deploy applies the objects of a Gateway, and reports to its status, also after a panic. A pass that ends early knows less
// than the one before it: unless it found a failure, the last state stays until the next pass.
func (t *term) deploy(ctx context.Context, g *gateway) (again bool, err error) {
	state := &status.Deployment{}
	complete := false
	again, err = t.recoverPanic(types.NamespacedName{Namespace: g.Namespace, Name: g.Name}, func() (again bool, err error) {
		complete, again, err = t.update(ctx, g, state)
		return again, err
	})
	var panicked *panicError
	if errors.As(err, &panicked) {
		state.Failure = err.Error()
	}
	if complete || state.Failure != "" {
		t.report(g.key(), state)
	}
	return again, err
}

// update applies the objects of a Gateway, and records in the state what failed. The state is complete if each object was
// dealt with.
func (t *term) update(ctx context.Context, g *gateway, state *status.Deployment) (complete, again bool, err error) {
	p, err := planOf(g, withListenerSets(t.Snapshot(), g))
	if err != nil {
		state.Failure = err.Error()
		return true, false, nil // until the Gateway changes
	}
	state.Name, state.Ignored = p.name, p.ignored
	want, err := t.wanted(ctx, p)
	var parameters unusableError
	var rendering renderError
	switch {
	case errors.As(err, &parameters):
		state.Parameters = err.Error()
		return true, false, nil // until the Gateway or the ConfigMap changes
	case errors.As(err, &rendering):
		state.Failure = err.Error()
		return true, false, nil // until the Gateway changes, or a restart with another configuration of injection
	case err != nil:
		return false, false, err
	}
	if again, err = t.write(ctx, p, want, state); err != nil || again {
		return false, again, err
	}
	t.inventory.keepWritten(g.UID, want)
	again, err = retry(t.prune(ctx, g.UID, want))
	return true, again || len(state.Conflicts) > 0, err
}

// wanted returns the objects that a Gateway should have.
func (t *term) wanted(ctx context.Context, p *plan) ([]object, error) {
	overlays, err := t.overlays(ctx, p.gateway)
	if err != nil {
		return nil, err
	}
	config := *t.Inject
	config.ProxyConfigs = t.ProxyConfigs()
	return p.render(&config, overlays)
}

// write applies objects, and records in the state what failed.
func (t *term) write(ctx context.Context, p *plan, want []object, state *status.Deployment) (again bool, err error) {
	for i := range want {
		conflict, err := t.apply(ctx, p, &want[i])
		switch {
		case err == nil:
		case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err): // it has changed meanwhile
			return true, nil
		case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
			return false, nil
		default:
			err = fmt.Errorf("cannot apply %s: %w", want[i].title(), err)
			state.Failure = err.Error()
			return false, err
		}
		if conflict != "" {
			state.Conflicts = append(state.Conflicts, conflict)
		}
	}
	return false, nil
}

// retry turns a conflict into another try.
func retry(err error) (again bool, _ error) {
	if apierrors.IsConflict(err) {
		return true, nil
	}
	return false, err
}

func (t *term) report(k model.Key, d *status.Deployment) { t.Statuses.SetDeployment(k, d) }

// ensureClasses queues the GatewayClasses of the mesh.
func (t *term) ensureClasses() {
	for _, class := range gatewayapi.Classes() {
		t.queue.Add(types.NamespacedName{Name: class})
	}
}

// createClass creates a GatewayClass, unless it exists. An existing one is not changed.
func (t *term) createClass(ctx context.Context, class string) error {
	_, err := t.dynamic.Resource(gatewayClasses).Get(ctx, class, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		return err
	}
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": gateways.GroupVersion().String(), "kind": "GatewayClass", "metadata": map[string]any{"name": class},
		"spec": map[string]any{
			"controllerName": gatewayapi.ControllerOf(class), "description": "Gateways that Moonsail deploys and serves",
		},
	}}
	if _, err = t.dynamic.Resource(gatewayClasses).Create(ctx, o, metav1.CreateOptions{FieldManager: fieldManager}); apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}
