package config

import (
	"strings"

	"github.com/moonsail/moonsail/internal/config/gatewayapi"
	"github.com/moonsail/moonsail/internal/model"
)

// servedByAll reports whether the control planes of every revision serve objects of a kind to their proxies. A Gateway's label
// selects the control plane that deploys it and writes its status. While it moves, its routers are still connected to the
// control plane before, and must keep their listeners. Istio 1.31 does the same. As there, a ListenerSet with a label is
// for its revision only.
func servedByAll(k model.Kind) bool { return k == model.KindKubernetesGateway }

// otherRevision reports whether an object is for the control planes of another revision, as Istio sees it.
func (d Decoder) otherRevision(group string, labels map[string]string) bool {
	rev := labels[model.LabelRevision]
	return d.Revision != "" && rev != "" && rev != d.Revision && (group == gatewayapi.Group || strings.HasSuffix(group, "istio.io"))
}

// otherRevisionTree is otherRevision for a document that is not decoded yet.
func (d Decoder) otherRevisionTree(group string, top map[string]any) bool {
	meta, _ := top["metadata"].(map[string]any)
	labels, _ := meta["labels"].(map[string]any)
	rev, _ := labels[model.LabelRevision].(string)
	return d.otherRevision(group, map[string]string{model.LabelRevision: rev})
}
