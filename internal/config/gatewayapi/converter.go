package gatewayapi

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/moonsail/moonsail/internal/config/convert"
	"github.com/moonsail/moonsail/internal/model"
)

// conv converts and checks one object.
type conv struct {
	*convert.Converter
	Routers string // the namespace of the routers of a Gateway or ListenerSet
}

// start begins the conversion of an object.
func start(in convert.Cluster, kind model.Kind, o *metav1.ObjectMeta) *conv {
	return &conv{Converter: convert.Start(in, kind, o), Routers: o.Namespace}
}
