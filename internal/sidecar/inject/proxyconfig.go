package inject

import (
	"google.golang.org/protobuf/types/known/wrapperspb"
	meshconfig "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1beta1"
	corev1 "k8s.io/api/core/v1"

	"github.com/moonsail/moonsail/internal/config/proxyconfig"
	"github.com/moonsail/moonsail/internal/model"
)

// proxyConfigs are the sources of a Pod's ProxyConfig. Later ones override earlier ones, as in Istio:
//
//	the mesh's defaultConfig, the root namespace's ProxyConfig, the namespace's   (base)
//	the annotation proxy.istio.io/config
//	a ProxyConfig that selects the Pod                                            (selecting)
//
// The agent gets base. It reads the annotation itself, because it may change.
type proxyConfigs struct {
	base, selecting *meshconfig.ProxyConfig
	all             *meshconfig.ProxyConfig
}

func (c *Config) proxyConfigsOf(pod *corev1.Pod) (*proxyConfigs, error) {
	out := &proxyConfigs{base: c.ProxyConfig}
	if said := c.ProxyConfigs; said != nil {
		mesh, err := proxyconfig.ParseAny(said.Default, "the mesh's defaultConfig")
		if err != nil {
			return nil, err
		}
		out.base = proxyconfig.Overlay(out.base, mesh)
		root, own, selecting := said.Of(pod.Namespace, pod.Labels)
		out.base = proxyconfig.Overlay(out.base, asProxyConfig(root))
		out.base = proxyconfig.Overlay(out.base, asProxyConfig(own))
		out.selecting = asProxyConfig(selecting)
	}
	own, err := proxyconfig.ParseAny(pod.Annotations[annotationProxyConfig], "annotation "+annotationProxyConfig)
	if err != nil {
		return nil, err
	}
	out.all = proxyconfig.Overlay(out.base, own)
	out.all = proxyconfig.Overlay(out.all, out.selecting)
	return out, nil
}

func asProxyConfig(p *model.ProxyConfig) *meshconfig.ProxyConfig {
	out := &meshconfig.ProxyConfig{}
	if p == nil {
		return out
	}
	if p.Concurrency != nil {
		out.Concurrency = wrapperspb.Int32(*p.Concurrency)
	}
	out.ProxyMetadata = p.Environment
	if p.ImageType != "" {
		out.Image = &networking.ProxyImage{ImageType: p.ImageType}
	}
	return out
}
