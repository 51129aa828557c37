package fleet

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/fetch"
)

// Identity is the identity in a proxy's node.
type Identity struct {
	Name, Namespace, IP string
	Labels              map[string]string
	// Class is the same for proxies with the same configuration; the fleet does not interpret it.
	Class string
}

// ID is the node id, in Istio's form.
func (id *Identity) ID() string {
	return fmt.Sprintf("sidecar~%s~%s.%s~%s.svc.cluster.local", id.IP, id.Name, id.Namespace, id.Namespace)
}

// node is the encoded envoy.config.core.v3.Node.
func (id *Identity) node() ([]byte, error) {
	node, err := fetch.Node(&model.Proxy{
		Type: model.ProxySidecar, Name: id.Name, Namespace: id.Namespace, IPs: []string{id.IP}, Labels: id.Labels, Cluster: id.Name + "." + id.Namespace,
	})
	if err != nil {
		return nil, err
	}
	return proto.Marshal(node)
}
