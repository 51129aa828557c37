package webhook

import (
	"github.com/moonsail/moonsail/internal/config/istio"
	"github.com/moonsail/moonsail/internal/model"
)

// proxyConfigs returns the mesh's current settings for sidecars.
func (h *Handler) proxyConfigs() *model.ProxyConfigs {
	snap := h.Snapshot()
	out := &model.ProxyConfigs{RootNamespace: h.RootNamespace}
	key := model.Key{Kind: model.KindMeshConfig, Namespace: h.RootNamespace, Name: istio.MeshConfigName}
	if m, ok := snap.Get(key).(*model.MeshConfig); ok {
		out.TakeMesh(m)
	}
	for o := range snap.All(model.KindProxyConfig) {
		out.Add(o)
	}
	return out
}
