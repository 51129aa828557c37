package convert

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/model"
)

// Converter converts and checks one object.
type Converter struct {
	problem.Report
	Meta   model.Meta
	Domain string
	Getenv func(name string) string // see Cluster
}

// Cluster is what a converter knows about the cluster.
type Cluster struct {
	Domain          string // such as "cluster.local"
	PodsListed      bool   // all Pods are decoded, so that a slice names none that is not there
	NoAutoAddresses bool   // ServiceEntries without addresses get none
	MeshConfigName  string // of the ConfigMap with the mesh's configuration
	// Getenv returns environment variables of the control plane; nil: they are not known.
	Getenv func(name string) string
}

// Start begins the conversion of an object.
func Start(in Cluster, kind model.Kind, o *metav1.ObjectMeta) *Converter {
	c := &Converter{Domain: in.Domain, Getenv: in.Getenv, Meta: model.Meta{
		Key:             model.Key{Kind: kind, Namespace: o.Namespace, Name: o.Name},
		Labels:          o.Labels,
		Annotations:     o.Annotations,
		ResourceVersion: o.ResourceVersion,
		Created:         o.CreationTimestamp.Time,
		Origin:          "kubernetes",
	}}
	c.Object = c.Meta.Key
	c.objectMeta(o)
	return c
}

// Host is a full host name for one written in this object. IP addresses stay.
func (c *Converter) Host(name string) model.Host {
	if model.IsIP(name) {
		return model.Host(name)
	}
	return model.ResolveHost(strings.TrimSuffix(name, "."), c.Meta.Namespace, c.Domain)
}
