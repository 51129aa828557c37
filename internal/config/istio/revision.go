package istio

import (
	"strings"

	"github.com/moonsail/moonsail/internal/model"
)

// elsewhere tells whether an object is for the control planes of another revision, as Istio sees it.
func (d Decoder) elsewhere(group string, labels map[string]string) bool {
	rev := labels[model.LabelRevision]
	return d.Revision != "" && rev != "" && rev != d.Revision && (group == GroupGatewayAPI || strings.HasSuffix(group, "istio.io"))
}

// elsewhereTree is elsewhere of a document.
func (d Decoder) elsewhereTree(group string, top map[string]any) bool {
	meta, _ := top["metadata"].(map[string]any)
	labels, _ := meta["labels"].(map[string]any)
	rev, _ := labels[model.LabelRevision].(string)
	return d.elsewhere(group, map[string]string{model.LabelRevision: rev})
}
