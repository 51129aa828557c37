package fetch

import (
	"cmp"
	"fmt"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/version"
	"github.com/moonsail/moonsail/internal/xds/agentapi"
)

// Node returns the node of a proxy as pilot-agent describes it.
func Node(p *model.Proxy) (*corev3.Node, error) {
	labels := map[string]any{}
	for k, v := range p.Labels {
		labels[k] = v
	}
	fields := map[string]any{
		"NAME": p.Name, "NAMESPACE": p.Namespace, "LABELS": labels, "INSTANCE_IPS": strings.Join(p.IPs, ","),
		"SERVICE_ACCOUNT": cmp.Or(p.ServiceAccount, "default"), "CLUSTER_ID": cmp.Or(p.ClusterID, "Kubernetes"),
		"INTERCEPTION_MODE": cmp.Or(string(p.Interception), "REDIRECT"), "ISTIO_VERSION": version.IstioAPI, "WORKLOAD_NAME": p.Name,
	}
	if p.Network != "" {
		fields["NETWORK"] = p.Network
	}
	// Moonsail's agent also says what it does for its Envoy.
	if p.Identity {
		fields[agentapi.MetaSDS] = "true"
	}
	if p.Files {
		fields[agentapi.MetaFiles] = true
	}
	if p.Modules {
		fields[agentapi.MetaModules] = true
	}
	metadata, err := structpb.NewStruct(fields)
	if err != nil {
		return nil, err
	}
	ip := ""
	if len(p.IPs) > 0 {
		ip = p.IPs[0]
	}
	domain := cmp.Or(p.DNSDomain, p.Namespace+".svc.cluster.local")
	return &corev3.Node{
		Id: fmt.Sprintf("%s~%s~%s.%s~%s", p.Type, ip, p.Name, p.Namespace, domain), Cluster: p.Cluster, Metadata: metadata,
		Locality: &corev3.Locality{Region: p.Locality.Region, Zone: p.Locality.Zone, SubZone: p.Locality.Subzone}, UserAgentName: "envoy",
		UserAgentVersionType: &corev3.Node_UserAgentBuildVersion{UserAgentBuildVersion: &corev3.BuildVersion{
			Version: &typev3.SemanticVersion{MajorNumber: 1, MinorNumber: 40},
		}},
	}, nil
}
