package explain

import (
	"fmt"
	"net"
	"strconv"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
	"github.com/moonsail/moonsail/internal/xds/resource"
)

// base returns the mesh's configuration from the start of the control plane.
func (x *Explainer) base() *model.Mesh {
	if x.Mesh == nil {
		return model.DefaultMesh()
	}
	return x.Mesh
}

// mesh returns the mesh's configuration of a snapshot.
func (x *Explainer) mesh(snap *store.Snapshot) *model.Mesh {
	base := x.base()
	for o := range snap.All(model.KindMeshConfig) {
		if c, ok := o.(*model.MeshConfig); ok && c.Namespace == base.RootNamespace {
			return c.Over(base)
		}
	}
	return base
}

// accepted adds the mutual TLS mode that a workload accepts at the port of an address, and the policies
// that decide it: those that the listener is made from.
func (x *Explainer) accepted(snap *store.Snapshot, w *proxyWorld, address string, passage *Passage) {
	_, text, err := net.SplitHostPort(address)
	if err != nil {
		return // the address is a socket's path
	}
	var policies []*model.PeerAuthentication
	for _, k := range w.madeFrom(resource.Listener, passage.Result.Listener, model.KindPeerAuthentication) {
		if policy, ok := snap.Get(k).(*model.PeerAuthentication); ok {
			policies = append(policies, policy)
		}
	}
	port, _ := strconv.ParseUint(text, 10, 16)
	root := x.mesh(snap).RootNamespace
	mode := model.EffectivePeerTLS(root, policies).Of(uint32(port))
	passage.Accepts = string(mode)
	if !w.proxy.Identity {
		passage.Accepts += ", without a certificate"
	}
	for _, policy := range model.EffectivePeerAuthentications(root, policies) {
		if policy.Mode != model.MTLSUnset || len(policy.Ports) > 0 {
			field := "spec.mtls"
			if _, named := policy.Ports[uint32(port)]; named {
				field = fmt.Sprintf("spec.portLevelMtls[\"%d\"]", port)
			}
			passage.Objects = append(passage.Objects, Source{
				Object: policy.Key, Origin: x.placeOf(&policy.Meta, field), Field: field, Decides: fmt.Sprintf("mutual TLS at port %d: %s", port, mode),
			})
		}
	}
}
