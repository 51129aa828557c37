package gatewaydeploy

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/yaml"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
	"github.com/moonsail/moonsail/internal/sidecar/inject"
)

// spec is that of a Gateway with one listener.
const spec = "{gatewayClassName: moonsail, listeners: [{name: http, port: 80, protocol: HTTP}]}"

// deployer returns a controller in front of an API server, and the states that it reports.
func deployer(t *testing.T, objects ...runtime.Object) (*term, *fake.FakeDynamicClient, reported) {
	t.Helper()
	config, states := inject.Default(), reported{}
	require.NoError(t, config.Prepare())
	client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{configMaps: "ConfigMapList"}, objects...)
	c := &Controller{
		RootNamespace: "istio-system", Inject: config, Snapshot: func() *store.Snapshot { return &store.Snapshot{} },
		ProxyConfigs: func() *model.ProxyConfigs { return nil }, Statuses: states, Panicked: func() {}, Log: slog.New(slog.DiscardHandler),
	}
	return &term{Controller: c, dynamic: client, inventory: newInventory()}, client, states
}

// TestUnfinishedPassesReportNothing checks that an error of the API server, or an object that changes meanwhile, does not
// clear a conflict that an earlier pass reported.
func TestUnfinishedPassesReportNothing(t *testing.T) {
	resource := schema.GroupResource{Resource: "serviceaccounts"}
	for name, c := range map[string]struct {
		verb, resource string
		err            error
		failure        string
	}{
		"the defaults cannot be read": {"list", "configmaps", errors.New("timeout"), ""},
		"an object has changed":       {"create", "serviceaccounts", apierrors.NewConflict(resource, "web", nil), ""},
		"an object was created":       {"create", "serviceaccounts", apierrors.NewAlreadyExists(resource, "web"), ""},
		"a write fails":               {"create", "serviceaccounts", errors.New("timeout"), "cannot apply"},
	} {
		t.Run(name, func(t *testing.T) {
			deploys, client, states := deployer(t)
			client.PrependReactor(c.verb, c.resource, func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, c.err })
			g := gatewayOf(t, spec)
			again, err := deploys.deploy(t.Context(), g)
			require.True(t, again || err != nil)
			for _, a := range client.Actions() {
				require.NotEqual(t, "patch", a.GetVerb(), "it would overwrite the object")
			}
			if c.failure == "" {
				require.Empty(t, states)
				return
			}
			require.Contains(t, states[g.key()].Failure, c.failure)
		})
	}
}

// TestNamespacesOfMesh checks that only Gateways in namespaces that the mesh's configuration selects are deployed.
func TestNamespacesOfMesh(t *testing.T) {
	const theirs = `
apiVersion: v1
kind: ConfigMap
metadata: {name: istio, namespace: istio-system}
data: {mesh: "discoverySelectors: [{matchLabels: {mesh: ours}}]"}
---
apiVersion: v1
kind: Namespace
metadata: {name: shop, labels: {mesh: theirs}}`
	const web = `
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: web, namespace: shop}
spec: ` + spec
	for name, c := range map[string]struct {
		objects string
		want    bool
	}{
		"selected":     {strings.Replace(theirs, "theirs", "ours", 1), true},
		"not selected": {theirs, false},
		"no selectors": {strings.Replace(theirs, "discoverySelectors: [{matchLabels: {mesh: ours}}]", "{}", 1), true},
	} {
		t.Run(name, func(t *testing.T) {
			g := &unstructured.Unstructured{}
			require.NoError(t, yaml.Unmarshal([]byte(web), &g.Object))
			deploys, client, _ := deployer(t)
			deploys.Snapshot = storeOf(t, c.objects).Snapshot
			client.PrependReactor("get", "gateways", func(clienttesting.Action) (bool, runtime.Object, error) { return true, g, nil })
			client.PrependReactor("create", "*", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("timeout") })
			_, err := deploys.reconcile(t.Context(), nameOf(g))
			require.Equal(t, c.want, err != nil)
			which, _ := concerned(storeOf(t, c.objects+"\n---"+web).Snapshot(), &store.Change{Key: model.Key{Kind: model.KindNamespace, Name: "shop"}})
			require.Equal(t, []types.NamespacedName{nameOf(g)}, which, "the labels of its namespace have changed")
		})
	}
}

// TestConflictsAreReported checks that a complete pass reports the objects of others.
func TestConflictsAreReported(t *testing.T) {
	theirs := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ServiceAccount", "metadata": map[string]any{"name": "web-moonsail", "namespace": "shop"},
	}}
	deploys, client, states := deployer(t, theirs)
	for _, verb := range []string{"create", "patch"} {
		client.PrependReactor(verb, "*", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"resourceVersion": "1"}}}, nil
		})
	}
	g := gatewayOf(t, spec)
	again, err := deploys.deploy(t.Context(), g)
	require.NoError(t, err)
	require.True(t, again, "the object may go away")
	require.Len(t, states[g.key()].Conflicts, 1)
	require.Contains(t, states[g.key()].Conflicts[0], "it was not created for this Gateway")
}

// TestPruneAfterCreation checks that an object that a control plane created, but did not apply before it ended, is deleted
// if its Gateway does not need it.
func TestPruneAfterCreation(t *testing.T) {
	for name, c := range map[string]struct {
		entry   map[string]any
		deleted bool
	}{
		"created":           {map[string]any{"manager": fieldManager, "operation": "Update"}, true},
		"applied":           {map[string]any{"manager": fieldManager, "operation": "Apply"}, true},
		"only its status":   {map[string]any{"manager": fieldManager, "operation": "Update", "subresource": "status"}, false},
		"created by others": {map[string]any{"manager": "kubectl", "operation": "Update"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			deploys, client, _ := deployer(t)
			child := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{
				"name": "web", "namespace": "shop", "uid": "2", "resourceVersion": "7", "managedFields": []any{c.entry},
				"ownerReferences": []any{map[string]any{"apiVersion": gateways.GroupVersion().String(), "kind": "Gateway", "name": "web", "uid": "1"}},
			}}}
			deploys.inventory.seeChild(configMaps, child)
			client.PrependReactor("delete", "*", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, nil })
			require.NoError(t, deploys.prune(t.Context(), "1", nil))
			require.Equal(t, c.deleted, len(client.Actions()) == 1)
		})
	}
}

// TestOwnByApply checks which requests make the fields of a creation those of an apply.
func TestOwnByApply(t *testing.T) {
	created := map[string]any{"manager": fieldManager, "operation": "Update"}
	appliedBefore := map[string]any{"manager": fieldManager, "operation": "Apply"}
	ofStatus := map[string]any{"manager": fieldManager, "operation": "Update", "subresource": "status"}
	for name, c := range map[string]struct {
		have []any
		want string // in the patch; empty: no request
	}{
		"a creation":               {[]any{ofStatus, created}, `[{"manager":"moonsail-gateways","operation":"Update","subresource":"status"},{"manager":"moonsail-gateways","operation":"Apply"}]`},
		"a creation and an apply":  {[]any{created, appliedBefore}, `[{"manager":"moonsail-gateways","operation":"Apply"}]`},
		"an apply":                 {[]any{appliedBefore}, ""},
		"an object without fields": {nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			deploys, client, _ := deployer(t)
			client.PrependReactor("patch", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, &unstructured.Unstructured{}, nil
			})
			have := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "web", "resourceVersion": "7", "managedFields": c.have}}}
			_, err := ownByApply(t.Context(), deploys.dynamic.Resource(configMaps).Namespace("shop"), have)
			require.NoError(t, err)
			if c.want == "" {
				require.Empty(t, client.Actions())
				return
			}
			require.Len(t, client.Actions(), 1)
			patch := client.Actions()[0].(clienttesting.PatchAction).GetPatch()
			require.JSONEq(t, `[{"op":"replace","path":"/metadata/managedFields","value":`+c.want+`},{"op":"replace","path":"/metadata/resourceVersion","value":"7"}]`, string(patch))
		})
	}
}

// TestWrittenIsForgotten checks that nothing remains of a Gateway that was deleted while it was reconciled.
func TestWrittenIsForgotten(t *testing.T) {
	i := newInventory()
	gateway := func(name, uid string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": name, "namespace": "shop", "uid": uid}}}
	}
	i.seeGateway(gateway("stays", "1"))
	i.seeGateway(gateway("goes", "2"))
	i.wrote(childKey{namespace: "shop", name: "stays"}, "1", gateway("stays", "3"))
	i.forgetGateway(types.NamespacedName{Namespace: "shop", Name: "goes"})
	i.wrote(childKey{namespace: "shop", name: "goes"}, "2", gateway("goes", "4"))
	i.dropWritten()
	require.Len(t, i.written, 1)
	require.Contains(t, i.written, childKey{namespace: "shop", name: "stays"})
}
