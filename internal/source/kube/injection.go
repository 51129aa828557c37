package kube

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/moonsail/moonsail/internal/config"
	"github.com/moonsail/moonsail/internal/model"
)

// InjectionConfig returns the configuration of injection in a ConfigMap. found is false if the ConfigMap does not exist.
func (c *Client) InjectionConfig(ctx context.Context, namespace, name string) (text string, found bool, err error) {
	api, err := c.configMaps()
	if err != nil {
		return "", false, err
	}
	o, err := api.Get(ctx, namespace, name)
	if apierrors.IsNotFound(err) {
		return "", false, nil
	}
	if err != nil {
		return "", false, err
	}
	return o.Data["config"], true, nil
}

// ReadProxySettings lists the MeshConfig and the ProxyConfigs.
func (c *Client) ReadProxySettings(ctx context.Context, d config.Decoder, rootNamespace string) (*Content, error) {
	kinds, err := c.kinds(ctx, rootNamespace, d.MeshConfigName())
	if err != nil {
		return nil, err
	}
	out := &Content{}
	for _, r := range kinds {
		if k := model.Kind(r.Kind); k != model.KindMeshConfig && k != model.KindProxyConfig {
			continue
		}
		if err := out.read(ctx, c, r, d); err != nil {
			return nil, fmt.Errorf("%s: %w", r.Kind, err)
		}
	}
	return out, nil
}
