package meshkube

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"

	"github.com/moonsail/moonsail/internal/lab/meshfiles"
)

var kinds = map[schema.GroupVersionResource]string{
	namespaces:                            "NamespaceList",
	{Version: "v1", Resource: "services"}: "ServiceList",
	deployments:                           "DeploymentList",
	{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"}:      "EndpointSliceList",
	{Group: "networking.istio.io", Version: "v1", Resource: "virtualservices"}:  "VirtualServiceList",
	{Group: "networking.istio.io", Version: "v1", Resource: "destinationrules"}: "DestinationRuleList",
	{Group: "networking.istio.io", Version: "v1", Resource: "sidecars"}:         "SidecarList",
}

// counted is a mesh on an API server that counts requests.
func counted(t *testing.T, s meshfiles.Shape) (c *Cluster, m *meshfiles.Mesh, client *fake.FakeDynamicClient, writes func() []string) {
	client = fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds)
	c = &Cluster{client: client, files: map[string][]*object{}, spaces: map[string]bool{}}
	require.NoError(t, c.checkEmpty(t.Context()))
	m, err := meshfiles.New(c, s)
	require.NoError(t, err)
	return c, m, client, func() (out []string) {
		for _, a := range client.Actions() {
			if a.GetVerb() != "get" && a.GetVerb() != "list" {
				out = append(out, a.GetVerb()+" "+a.GetResource().Resource)
			}
		}
		client.ClearActions()
		return out
	}
}

// TestOnlyChangedObjectsAreWritten checks that a change of endpoints is one request, although their file also has the
// Service.
func TestOnlyChangedObjectsAreWritten(t *testing.T) {
	_, m, client, writes := counted(t, meshfiles.Shape{Services: 3, Proxies: 3, Bystanders: 1})
	for r, n := range map[string]int{"services": 3, "endpointslices": 3, "virtualservices": 3, "sidecars": 1, "namespaces": 2} {
		for gvr := range kinds {
			if gvr.Resource == r {
				list, err := client.Resource(gvr).List(t.Context(), metav1.ListOptions{})
				require.NoError(t, err)
				require.Len(t, list.Items, n, r)
			}
		}
	}
	writes()
	for _, c := range []struct {
		change func() (meshfiles.Change, error)
		writes []string
	}{
		{func() (meshfiles.Change, error) { return m.ReplaceEndpoint(1) }, []string{"update endpointslices"}},
		{func() (meshfiles.Change, error) { return m.ChangeRoute(1) }, []string{"update virtualservices"}},
		{func() (meshfiles.Change, error) { return m.SetRule(1) }, []string{"create destinationrules"}},
		{func() (meshfiles.Change, error) { return m.SetRule(1) }, []string{"update destinationrules"}},
		{func() (meshfiles.Change, error) { return m.AddService("new") }, []string{"create services", "create endpointslices"}},
		{func() (meshfiles.Change, error) { return m.RemoveService("new") }, []string{"delete services", "delete endpointslices"}},
	} {
		change, err := c.change()
		require.NoError(t, err)
		require.Empty(t, writes(), "nothing is written before its time")
		require.NoError(t, change.Apply())
		require.ElementsMatch(t, c.writes, writes())
	}
}

func TestClusterMustBeEmptyAndIsCleared(t *testing.T) {
	c, _, client, _ := counted(t, meshfiles.Shape{Services: 2, Proxies: 2})
	other := &Cluster{client: client}
	require.ErrorContains(t, other.checkEmpty(t.Context()), `namespace mesh: exists, from another run of the lab`)
	require.NoError(t, c.Clear())
	require.NoError(t, other.checkEmpty(t.Context()))
}

func TestDocumentsWithoutANameAreRefused(t *testing.T) {
	c := &Cluster{}
	_, err := c.Stage("x.yaml", "kind: Service\n")
	require.ErrorContains(t, err, "needs kind, name and namespace")
}
