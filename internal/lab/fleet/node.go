package fleet

import (
	"fmt"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
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
	labels := make(map[string]any, len(id.Labels))
	for k, v := range id.Labels {
		labels[k] = v
	}
	meta, err := structpb.NewStruct(map[string]any{
		"NAMESPACE": id.Namespace, "NAME": id.Name, "LABELS": labels, "INSTANCE_IPS": id.IP,
		"SERVICE_ACCOUNT": "default", "CLUSTER_ID": "Kubernetes", "INTERCEPTION_MODE": "REDIRECT", "ISTIO_VERSION": "1.31.0",
	})
	if err != nil {
		return nil, err
	}
	return proto.Marshal(&corev3.Node{Id: id.ID(), Cluster: id.Name + "." + id.Namespace, Metadata: meta, UserAgentName: "envoy",
		UserAgentVersionType: &corev3.Node_UserAgentBuildVersion{UserAgentBuildVersion: &corev3.BuildVersion{Version: &typev3.SemanticVersion{MajorNumber: 1, MinorNumber: 40}}}})
}
