package webhook

import (
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
)

// proxyConfigs returns the mesh's current settings for sidecars.
func (h *Handler) proxyConfigs() *model.ProxyConfigs {
	return ProxyConfigs(h.Snapshot(), h.RootNamespace)
}

// ProxyConfigs returns the mesh's settings for sidecars and gateways in a snapshot.
func ProxyConfigs(snap *store.Snapshot, rootNamespace string) *model.ProxyConfigs {
	out := &model.ProxyConfigs{RootNamespace: rootNamespace}
	key := model.Key{Kind: model.KindMeshConfig, Namespace: rootNamespace, Name: model.MeshConfigName}
	if m, ok := snap.Get(key).(*model.MeshConfig); ok {
		out.TakeMesh(m)
	}
	for o := range snap.All(model.KindProxyConfig) {
		out.Add(o)
	}
	return out
}
