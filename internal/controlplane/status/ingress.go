package status

import (
	"cmp"
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
)

// ingressStatus is the current status of an Ingress: addresses of its load balancer.
type ingressStatus []balancerAddress

// balancerAddress is one of an Ingress, as the API writes it.
type balancerAddress struct {
	IP       string `json:"ip,omitempty"`
	Hostname string `json:"hostname,omitempty"`
}

func compareBalancers(a, b balancerAddress) int {
	return cmp.Or(strings.Compare(a.Hostname, b.Hostname), strings.Compare(a.IP, b.IP))
}

func parseIngressStatus(raw json.RawMessage) ingressStatus {
	var s struct {
		LoadBalancer struct {
			Ingress []balancerAddress `json:"ingress"`
		} `json:"loadBalancer"`
	}
	if len(raw) > 0 && json.Unmarshal(raw, &s) != nil {
		return nil
	}
	return s.LoadBalancer.Ingress
}

// refused implements written. A status of an Ingress has no conditions.
func (s ingressStatus) refused() bool { return false }

// generation implements written.
func (s ingressStatus) generation() int64 { return 0 }

// plan implements written.
func (s ingressStatus) plan(o *object) patcher {
	if o.balancer == nil {
		return nil
	}
	want := []balancerAddress{}
	for _, a := range o.balancer {
		if _, err := netip.ParseAddr(a); err == nil {
			want = append(want, balancerAddress{IP: a})
		} else {
			want = append(want, balancerAddress{Hostname: a})
		}
	}
	slices.SortFunc(want, compareBalancers)
	if slices.Equal(slices.SortedFunc(slices.Values(s), compareBalancers), want) {
		return nil
	}
	version := o.seen.Version
	return func(time.Time) ([]byte, error) {
		return json.Marshal(map[string]any{
			"metadata": map[string]any{"resourceVersion": version}, "status": map[string]any{"loadBalancer": map[string]any{"ingress": want}},
		})
	}
}

// balancers returns the addresses of the mesh's Ingresses: those of the routers' Service.
func balancers(snap *store.Snapshot, base *model.Mesh) map[model.Key][]string {
	settings := base.Ingress
	for o := range snap.All(model.KindMeshConfig) {
		if m, ok := o.(*model.MeshConfig); ok && m.Ingress != nil {
			settings = *m.Ingress
		}
	}
	addresses := []string{}
	if s, ok := snap.Get(model.Key{Kind: model.KindService, Namespace: base.RootNamespace, Name: settings.Service}).(*model.Service); ok {
		addresses = append(addresses, model.IngressAddresses(s)...)
	}
	out := map[model.Key][]string{}
	for o := range snap.All(model.KindIngress) {
		i, ok := o.(*model.Ingress)
		if !ok {
			continue
		}
		class, _ := snap.Get(model.Key{Kind: model.KindIngressClass, Name: i.Class}).(*model.IngressClass)
		if settings.Serves(i, class) {
			out[i.Key] = addresses
		}
	}
	return out
}

// setBalancers sets the addresses that statuses of Ingresses should have.
func (t *Tracker) setBalancers(all map[model.Key][]string) {
	t.each(func(k model.Key, o *object) bool {
		was := o.balancer
		o.balancer = all[k]
		return (was == nil) != (o.balancer == nil) || !slices.Equal(was, o.balancer)
	})
}
