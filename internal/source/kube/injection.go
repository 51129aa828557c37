package kube

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
