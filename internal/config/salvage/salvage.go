package salvage

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/model"
)

// Result is the valid part of a security policy, or of a route, that has errors. It applies as long as no version of the
// object was ever valid. Without it, a policy with a mistake would allow what it should refuse, and a route's valid rules
// would be missing after a restart of the control plane. Of two readings the stricter one applies.
type Result struct {
	Object model.Object
	Note   problem.Problem // a warning that describes what is in force
}

// salvagers remove the invalid parts of a document, by kind. Objects of other kinds are used whole or not at all.
var salvagers = map[model.Kind]func(spec map[string]any, errors [][]problem.Step){
	model.KindAuthorizationPolicy:   salvageAuthorization,
	model.KindPeerAuthentication:    salvagePeerAuthentication,
	model.KindRequestAuthentication: salvageRequestAuthentication,
	model.KindBackendTLSPolicy:      salvageBackendTLS,
}

// maxSalvages is how often a document is mended: what was mended may show further errors, and not more than
// maxProblems are known at a time. It bounds what a document costs that is nothing but errors.
const maxSalvages = 8

// Document is what is good of a document with problems; nil: nothing, or there are no errors. decode reads
// a mended document as the first one was read.
func Document(kind model.Kind, document []byte, problems problem.List, decode func([]byte) (model.Object, problem.List)) *Result {
	if !problems.HasErrors() {
		return nil
	}
	if _, ok := routeKinds[kind]; ok {
		return salvageRoute(kind, document, problems, decode)
	}
	note := problem.Problem{Severity: problem.SeverityWarning, Code: code.PartlyUsed}
	for _, p := range problems {
		note.Object = p.Object
	}
	wide := false // for more workloads than was meant
	for range maxSalvages {
		if salvagers[kind] == nil || !problems.HasErrors() {
			return nil
		}
		mended, wider, ok := withoutErrors(kind, document, problems)
		if !ok || bytes.Equal(mended, document) {
			return nil
		}
		wide = wide || wider
		var o model.Object
		if o, problems = decode(mended); o != nil && !problems.HasErrors() {
			note.Message = "no valid version is known: until it is corrected, " + meanwhile(o)
			if wide {
				note.Message += "; its selector is invalid, so this applies to " + whom(o)
			}
			return &Result{Object: o, Note: note}
		}
		document = mended
	}
	return nil
}

// withoutErrors returns a document without its invalid fields. wide reports that it then selects more workloads than
// its author meant.
func withoutErrors(kind model.Kind, document []byte, problems problem.List) (out []byte, wide, ok bool) {
	var top map[string]any
	if json.Unmarshal(document, &top) != nil {
		return nil, false, false
	}
	spec, ok := top["spec"].(map[string]any)
	if !ok {
		return nil, false, false
	}
	var errors [][]problem.Step
	for _, p := range problems {
		at, _ := problem.Steps(p.Field)
		switch {
		case p.Severity != problem.SeverityError:
		case len(at) > 2 && at[0].Name == "metadata" && (at[1].Name == "annotations" || at[1].Name == "labels"):
			cut(top, at)
		case len(at) > 1 && at[0].Name == "spec":
			errors = append(errors, at[1:])
		default:
			return nil, false, false // it is not known which object it is
		}
	}
	wide = salvageScope(spec, errors)
	if salvagers[kind](spec, errors); wide && !onlyCloses(kind, spec) {
		return nil, false, false
	}
	out, err := json.Marshal(sweep(top, ""))
	return out, wide, err == nil
}

// meanwhile describes what is in force until the object is corrected.
func meanwhile(o model.Object) string {
	switch o := o.(type) {
	case *model.AuthorizationPolicy:
		switch {
		case o.Action == model.AuthorizeAllow && len(o.Rules) == 0:
			return "the policy allows nothing"
		case o.Action == model.AuthorizeAllow:
			return fmt.Sprintf("only its valid rules allow requests (%d)", len(o.Rules))
		}
		return fmt.Sprintf("%d of its rules apply without their invalid parts, and so to more calls than written", len(o.Rules))
	case *model.PeerAuthentication:
		return fmt.Sprintf("the mode is %s; ports that do not exist are left out", cmp.Or(o.Mode, "UNSET"))
	case *model.BackendTLSPolicy:
		if len(o.CAs) == 0 && !o.System {
			return "no connection is made to its targets"
		}
		return "the policy applies to its valid targets"
	}
	return "invalid rules accept no token, unless the error concerns only how tokens are found and forwarded"
}

// whom describes the workloads that an object applies to if its selector is missing or incomplete.
func whom(o model.Object) string {
	var labels map[string]string
	switch o := o.(type) {
	case *model.AuthorizationPolicy:
		labels = o.Selector
	case *model.PeerAuthentication:
		labels = o.Selector
	}
	namespace := "workloads of namespace " + o.Metadata().Key.Namespace
	if len(labels) == 0 {
		return "all " + namespace
	}
	var list []string
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		list = append(list, k+"="+labels[k])
	}
	return namespace + " with " + strings.Join(list, ",")
}
