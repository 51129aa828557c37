package kube

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/moonsail/moonsail/internal/base/logonce"
	"github.com/moonsail/moonsail/internal/config"
)

// SharedData is a ConfigMap with bytes that control planes share.
type SharedData struct {
	client          *Client
	api             *API[corev1.ConfigMap, *corev1.ConfigMap]
	namespace, name string
	key             string
	failed          func(error)
	changed         error
}

// SharedData returns a ConfigMap with bytes under a key. failed is called with the first error since a success of reading
// it. changed is the error of Write if another one wrote it.
func (c *Client) SharedData(namespace, name, key string, failed func(error), changed error) (*SharedData, error) {
	api, err := c.configMaps()
	if err != nil {
		return nil, err
	}
	return &SharedData{c, api, namespace, name, key, failed, changed}, nil
}

// Place names it for people.
func (s *SharedData) Place() string { return "ConfigMap " + s.namespace + "/" + s.name }

// Watch calls see with the bytes and their version, at first and after each change, until ctx ends. Both are empty while
// the ConfigMap does not exist.
func (s *SharedData) Watch(ctx context.Context, see func(data []byte, version string)) error {
	kind := &resource{
		Resource: config.Resource{Kind: "ConfigMap"}, version: "v1", plural: "configmaps", example: &corev1.ConfigMap{},
		namespace: s.namespace, field: "metadata.name=" + s.name,
	}
	var errs logonce.Errors
	lw, err := s.client.listWatch(kind, func(err error) {
		if errs.First(err) && ctx.Err() == nil {
			s.failed(err)
		}
	})
	if err != nil {
		return err
	}
	exists := false
	Watch(ctx, s.name, lw, &corev1.ConfigMap{}, Handler[*corev1.ConfigMap]{
		Upsert: func(m *corev1.ConfigMap) {
			exists = true
			see(m.BinaryData[s.key], m.ResourceVersion)
		},
		Remove: func(types.NamespacedName) {
			exists = false
			see(nil, "")
		},
		Listed: func() {
			if !exists {
				see(nil, "")
			}
		},
	})
	return nil
}

// Write replaces the bytes, or creates the ConfigMap if the version is empty.
func (s *SharedData) Write(ctx context.Context, data []byte, version string) (newVersion string, err error) {
	m := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: s.name, ResourceVersion: version},
		BinaryData: map[string][]byte{s.key: data},
	}
	if version == "" {
		m, err = s.api.Create(ctx, m)
	} else {
		m, err = s.api.Update(ctx, m)
	}
	switch {
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), apierrors.IsNotFound(err) && version != "":
		return "", s.changed
	case err != nil:
		return "", err
	}
	return m.ResourceVersion, nil
}
