package config

import (
	"cmp"

	"github.com/moonsail/moonsail/internal/model"
)

// MeshConfigName returns the name of the ConfigMap that has the mesh's configuration.
func (d Decoder) MeshConfigName() string { return cmp.Or(d.MeshConfigMap, model.MeshConfigName) }

// otherMeshConfig reports whether a ConfigMap has the default name of the mesh's configuration, but this control plane reads
// another one.
func (d Decoder) otherMeshConfig(k model.Key) bool {
	return k.IsMeshConfig() && k.Name != d.MeshConfigName()
}

// modelKey returns the key that an object has in the model. Only the mesh's configuration may have another name there: it has
// one key, whatever its ConfigMap is called, and no credential can have that key.
func (d Decoder) modelKey(k model.Key) model.Key {
	if k.Kind == model.KindMeshConfig && k.Name == d.MeshConfigName() {
		k.Name = model.MeshConfigName
	}
	return k
}
