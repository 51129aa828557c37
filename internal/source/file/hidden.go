package file

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/model"
)

// A file that cannot be read keeps its earlier content in force, if that is known. At the start it is not, and a policy in
// the file might refuse what would be allowed without it. So nothing is served while there are such files or directories:
// sidecars keep their configuration, and those without one accept no connections.

// securityMarks are texts of which each policy contains one.
var securityMarks = []string{
	"security.istio.io", string(model.KindAuthorizationPolicy), string(model.KindPeerAuthentication), string(model.KindRequestAuthentication),
}

func marked(text string) bool {
	return slices.ContainsFunc(securityMarks, func(m string) bool { return strings.Contains(text, m) })
}

// hides reports whether a document may be a policy without any known valid part.
func hides(n *yaml.Node, d *document) bool {
	return d.usable() == nil && d.problems.HasErrors() && saysPolicy(n, map[*yaml.Node]bool{})
}

// saysPolicy reports whether the kind of a node may be a policy, including aliases and merges. These may be cyclic:
// seen are the visited nodes.
func saysPolicy(n *yaml.Node, seen map[*yaml.Node]bool) bool {
	if seen[n] {
		return false
	}
	seen[n] = true
	switch n.Kind {
	case yaml.ScalarNode:
		return marked(n.Value)
	case yaml.AliasNode:
		return saysPolicy(n.Alias, seen)
	case yaml.DocumentNode, yaml.SequenceNode:
		return slices.ContainsFunc(n.Content, func(part *yaml.Node) bool { return saysPolicy(part, seen) })
	}
	for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		switch n.Content[i].Value {
		case "apiVersion", "kind", "<<", "items": // items: of a List that cannot be opened
			if saysPolicy(n.Content[i+1], seen) {
				return true
			}
		}
	}
	return false
}

// hold records whether a file may hide policies, until all files were read once.
func (s *Source) hold(path string, doubtful bool) {
	delete(s.held, path)
	if doubtful && s.held != nil {
		s.held[path] = struct{}{}
	}
}

// release reports Synced when no policies are hidden any more.
func (s *Source) release() {
	if s.held == nil || s.loading {
		return
	}
	if len(s.held) == 0 {
		s.held = nil
		s.waiting.Store(nil)
		s.Intake.Synced(SourceName)
		return
	}
	err := errors.New(strings.Join(slices.Sorted(maps.Keys(s.held)), ", ") + ": " + hidden)
	s.waiting.Store(&err)
}

// Waiting returns why the source is not synced; nil: nothing that a user must correct.
func (s *Source) Waiting() error {
	if err := s.waiting.Load(); err != nil {
		return *err
	}
	return nil
}

// heldProblems reports the files that block the start.
func (s *Source) heldProblems() problem.List {
	var out problem.List
	for path := range s.held {
		out = append(out, problem.Problem{
			Severity: problem.SeverityError, Code: code.HiddenPolicies, File: path, Message: hidden,
		})
	}
	return out
}

const hidden = "may have policies that cannot be read, and no earlier version is known: " +
	"nothing is served until the file is corrected or removed; sidecars keep their configuration"
