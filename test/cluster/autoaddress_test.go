package cluster

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/moonsail/moonsail/internal/controlplane"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/test/kubetest"
)

// database is a ServiceEntry of a TCP port without addresses. with is added to its spec.
func database(name, with string) string {
	return fmt.Sprintf(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: %[1]s}
spec:
  hosts: [%[1]s.example.com]
  ports: [{number: 3306, name: tcp, protocol: TCP}]
  resolution: STATIC
  endpoints: [{address: 192.0.2.1}]
  %[2]s
`, name, with)
}

// given returns the addresses in an object's status by host, and the object's version.
func given(o *unstructured.Unstructured) (all map[string][]string, version string) {
	all = map[string][]string{}
	list, _, _ := unstructured.NestedSlice(o.Object, "status", "addresses")
	for _, e := range list {
		m := e.(map[string]any)
		host, _ := m["host"].(string)
		value, _ := m["value"].(string)
		all[host] = append(all[host], value)
	}
	return all, o.GetResourceVersion()
}

// awaitGiven waits until an object's status has suitable addresses, and returns them.
func awaitGiven(t *testing.T, c *kubetest.Cluster, ns, name string, will func(list []string) bool) (list []string, version string) {
	t.Helper()
	c.Eventually(t, "addresses of "+name, func(ctx context.Context) error {
		o, err := object(ctx, c, ns, "ServiceEntry", name)
		if err != nil {
			return err
		}
		all, v := given(o)
		if list, version = all[name+".example.com"], v; !will(list) {
			return fmt.Errorf("it has %v", o.Object["status"])
		}
		return nil
	})
	return list, version
}

func bothFamilies(list []string) bool {
	usual := model.DefaultAutoAddresses()
	return len(list) == 2 && usual.V4.Contains(netip.MustParseAddr(list[0])) && usual.V6.Contains(netip.MustParseAddr(list[1]))
}

// tell writes addresses into a status, as another control plane would.
func tell(t *testing.T, c *kubetest.Cluster, ns, name string, list ...string) {
	t.Helper()
	var all []string
	for _, a := range list {
		all = append(all, fmt.Sprintf(`{"host":%q,"value":%q}`, name+".example.com", a))
	}
	patch := fmt.Sprintf(`{"status":{"addresses":[%s]}}`, strings.Join(all, ","))
	_, err := c.Dynamic.Resource(plurals["ServiceEntry"]).Namespace(ns).
		Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
	require.NoError(t, err)
}

// TestAddressesOfServiceEntries checks that addresses are written into statuses, survive restarts, and are used when
// they are read. Of two ServiceEntries with the same address the older one keeps it.
func TestAddressesOfServiceEntries(t *testing.T) {
	c := kubetest.Shared(t)
	ns := c.Namespace(t)
	c.Apply(t, ns, database("db", ""))
	first := runControl(t, c, nil)
	list, version := awaitGiven(t, c, ns, "db", bothFamilies)
	capturing := connectWith(t, first.addr, ns, "client", "10.9.9.9", map[string]any{"DNS_CAPTURE": "true"})
	c.Eventually(t, "a listener at the address", listening(capturing, list[0]+"_3306"))
	require.False(t, capturing.listens("0.0.0.0_3306"))
	plain := connect(t, first.addr, ns)
	c.Eventually(t, "a listener of the port", listening(plain, "0.0.0.0_3306"))

	// An address that another control plane wrote is used.
	tell(t, c, ns, "db", "240.240.77.77", "2001:2::77")
	c.Eventually(t, "a listener at the new address", listening(capturing, "240.240.77.77_3306"))
	first.stop()
	second := runControl(t, c, nil)
	capturing = connectWith(t, second.addr, ns, "client", "10.9.9.9", map[string]any{"DNS_CAPTURE": "true"})
	c.Eventually(t, "a listener at the address of before", listening(capturing, "240.240.77.77_3306"))

	// Of two with the same address, the younger one gets another; names decide if both are of the same second.
	c.Apply(t, ns, database("younger", ""))
	awaitGiven(t, c, ns, "younger", bothFamilies)
	tell(t, c, ns, "younger", "240.240.77.77", "2001:2::78")
	list, _ = awaitGiven(t, c, ns, "younger", func(list []string) bool { return bothFamilies(list) && list[0] != "240.240.77.77" })
	require.Equal(t, "2001:2::78", list[1], "a unique address stays")
	c.Eventually(t, "a listener at each address", listening(capturing, "240.240.77.77_3306", list[0]+"_3306"))

	// A ServiceEntry that states its addresses gets no others.
	c.Apply(t, ns, database("younger", "addresses: [240.240.77.80]"))
	awaitGiven(t, c, ns, "younger", func(list []string) bool { return len(list) == 0 })
	c.Eventually(t, "a listener at its own address", listening(capturing, "240.240.77.80_3306"))

	kept, after := awaitGiven(t, c, ns, "db", bothFamilies)
	require.Equal(t, []string{"240.240.77.77", "2001:2::77"}, kept)
	require.NotEqual(t, version, after)
	c.Apply(t, ns, database("later", ""))
	awaitGiven(t, c, ns, "later", bothFamilies)
	_, still := awaitGiven(t, c, ns, "db", bothFamilies)
	require.Equal(t, after, still, "what is right is not written again")
}

func listening(p *proxy, names ...string) func(context.Context) error {
	return func(context.Context) error {
		for _, name := range names {
			if !p.listens(name) {
				return fmt.Errorf("no listener %s", name)
			}
		}
		return nil
	}
}

// TestNoAddressesOfServiceEntries checks that with PILOT_ENABLE_IP_AUTOALLOCATE=false no address is written, and that
// existing ones affect only proxies that request them.
func TestNoAddressesOfServiceEntries(t *testing.T) {
	c := kubetest.Shared(t)
	ns := c.Namespace(t)
	c.Apply(t, ns, database("db", "")+"---"+database("written", "")+"---"+web+"---"+route(badHeader))
	tell(t, c, ns, "written", "240.240.88.88")
	control := runControl(t, c, func(o *controlplane.Options) { o.Mesh.AutoAddresses.Off = true })
	awaitReconciled(t, c, ns, "VirtualService", "web", "False", "Invalid") // after all objects were processed
	o, err := object(t.Context(), c, ns, "ServiceEntry", "db")
	require.NoError(t, err)
	all, _ := given(o)
	require.Empty(t, all)
	capturing := connectWith(t, control.addr, ns, "client", "10.9.9.9", map[string]any{"DNS_CAPTURE": "true"})
	c.Eventually(t, "a listener of the port", listening(capturing, "0.0.0.0_3306"))
	require.False(t, capturing.listens("240.240.88.88_3306"))
	asking := connectWith(t, control.addr, ns, "asking", "10.9.9.8", map[string]any{"DNS_CAPTURE": "true", "DNS_AUTO_ALLOCATE": "true"})
	c.Eventually(t, "a listener at the address", listening(asking, "240.240.88.88_3306"))
}
