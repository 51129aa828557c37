package config

import (
	"encoding/json"

	"go.yaml.in/yaml/v3"

	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/config/salvage"
	"github.com/moonsail/moonsail/internal/config/schema"
	"github.com/moonsail/moonsail/internal/model"
)

// salvageNode is that of a document of a file.
func (d Decoder) salvageNode(kind apiKind, r *problem.Report, content []byte, problems problem.List) *salvage.Result {
	return salvage.Document(kind.model(), content, problems, func(document []byte) (model.Object, problem.List) {
		var n yaml.Node
		if err := yaml.Unmarshal(document, &n); err != nil {
			return nil, problem.List{{Severity: problem.SeverityError, Code: code.InvalidYAML, Message: schema.SyntaxMessage(err)}}
		}
		var top map[string]any
		_ = json.Unmarshal(document, &top) // it was written a moment ago
		out := d.checked(kind, &n, top, &problem.Report{Object: r.Object})
		return out.Object, out.Problems
	})
}

// salvageRaw is that of an object of an API server.
func (d Decoder) salvageRaw(r Resource, raw []byte, problems problem.List) *salvage.Result {
	return salvage.Document(r.Model, raw, problems, func(document []byte) (model.Object, problem.List) {
		typed := newTyped(r.Model)
		if err := json.Unmarshal(document, typed); err != nil {
			return nil, problem.List{{Severity: problem.SeverityError, Code: code.Unreadable, Message: err.Error()}}
		}
		return d.FromTyped(typed)
	})
}
