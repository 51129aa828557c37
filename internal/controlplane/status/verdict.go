package status

import (
	"fmt"
	"strings"

	"github.com/moonsail/moonsail/internal/config/problem"
)

// Reconciled is the type of the condition.
const Reconciled = "Reconciled"

// Reasons of the condition.
const (
	ReasonAccepted = "Accepted"
	ReasonWarnings = "AcceptedWithWarnings" // in force; part of it has no effect
	ReasonInvalid  = "Invalid"              // not used
	ReasonRefused  = "RefusedByProxies"     // proxies refuse what is made from it
)

// facts are the known problems of an object.
type facts struct {
	problems    problem.List // of the object itself
	inForce     bool         // an earlier version is in force
	partial     bool         // its valid parts are in force
	crossChecks problem.List // problems between it and others
	refused     *refusal     // nil: no proxy refuses it
}

// refusal is a refusal by proxies of resources that are made from an object.
type refusal struct {
	what    string // "CDS outbound|80||web.shop.svc.cluster.local"
	message string
	proxies int
	others  int  // further refused resources of the object
	shared  int  // other objects that may be meant as well
	doubt   bool // it is uncertain that this object is meant
	mesh    bool // the mesh's configuration may be meant as well
	changed bool // it changed since proxies last accepted it
}

// verdict is what a status should be.
type verdict struct {
	ok       bool
	reason   string
	message  string
	messages []message
}

// message is one of the validationMessages. Istio's schema has no field for its text, which is in the
// condition.
type message struct{ name, code, url, level string }

// Types of messages. The first one is Istio's, with its meaning.
var (
	messageInvalid    = message{"SchemaValidationError", "IST0106", "https://istio.io/docs/reference/config/analysis/ist0106/", levelError}
	messageWarning    = message{"MoonsailWarning", "MSL0001", "", levelWarning}
	messageCrossCheck = message{"MoonsailAnalysis", "MSL0002", "", levelError}
	messageRefused    = message{"MoonsailRefused", "MSL0003", "", levelError}
)

// Levels of Istio's API.
const (
	levelError   = "ERROR"
	levelWarning = "WARNING"
)

// ours reports whether a message is of this package.
func ours(name string) bool {
	switch name {
	case messageInvalid.name, messageWarning.name, messageCrossCheck.name, messageRefused.name:
		return true
	}
	return false
}

// Bounds of a status, which people read.
const (
	maxMessages = 20
	maxText     = 4096 // bytes of a condition's message
)

// judge returns what the status should be.
func (f *facts) judge() verdict {
	v := verdict{ok: true, reason: ReasonAccepted}
	var texts []string
	if f.refused != nil {
		v.ok, v.reason = false, ReasonRefused
		texts = append(texts, f.refused.String())
		v.messages = append(v.messages, messageRefused)
	}
	if f.problems.HasErrors() {
		v.ok, v.reason = false, ReasonInvalid
		texts = []string{f.use()}
	}
	for _, p := range concerning(f.problems) {
		texts = append(texts, text(p))
		v.messages = append(v.messages, own(p).coded(p))
	}
	for _, p := range concerning(f.crossChecks) {
		texts = append(texts, text(p))
		v.messages = append(v.messages, between(p.Severity).coded(p))
	}
	if v.ok && len(v.messages) > 0 {
		v.reason = ReasonWarnings
	}
	v.messages = v.messages[:min(len(v.messages), maxMessages)]
	v.message = shorten(texts)
	return v
}

// silent reports whether there are no problems.
func (v *verdict) silent() bool { return v.ok && len(v.messages) == 0 }

// concerning leaves out infos, and puts the worst first.
func concerning(ps problem.List) problem.List {
	var out problem.List
	for _, s := range []problem.Severity{problem.SeverityError, problem.SeverityWarning} {
		for _, p := range ps {
			if p.Severity == s {
				out = append(out, p)
			}
		}
	}
	return out
}

// coded returns a message with the code of its problem. An error of one object keeps Istio's code.
func (m message) coded(p problem.Problem) message {
	if p.Code != "" && m.name != messageInvalid.name {
		m.code = string(p.Code)
	}
	return m
}

func own(p problem.Problem) message {
	if p.Severity == problem.SeverityError {
		return messageInvalid
	}
	return messageWarning
}

func between(s problem.Severity) message {
	m := messageCrossCheck
	if s != problem.SeverityError {
		m.level = levelWarning
	}
	return m
}

func (f *facts) use() string {
	switch {
	case f.inForce:
		return "not used; its last valid version stays in force"
	case f.partial:
		return "used in part"
	}
	return "not used"
}

func text(p problem.Problem) string {
	if p.Field == "" {
		return fmt.Sprintf("%s: %s", p.Severity, p.Coded())
	}
	return fmt.Sprintf("%s: %s: %s", p.Severity, p.Field, p.Coded())
}

// String describes the refusal: how many proxies, what, and Envoy's message.
func (r *refusal) String() string {
	who := "1 proxy refuses"
	if r.proxies != 1 {
		who = fmt.Sprintf("%d proxies refuse", r.proxies)
	}
	what := r.what
	if r.others > 0 {
		what += fmt.Sprintf(" and %d more", r.others)
	}
	return fmt.Sprintf("%s %s, and their last accepted version stays in force: %s", who, what+r.doubts(), r.message)
}

// doubts names what else may be meant.
func (r *refusal) doubts() string {
	if r.shared == 0 && !r.doubt {
		return ""
	}
	out := " (this object may be the cause"
	if r.changed {
		out = " (this object was changed since their last accepted version, and may be the cause"
	}
	if r.shared > 0 {
		out += fmt.Sprintf(", or one of %d others", r.shared)
	}
	if r.mesh {
		out += ", or the mesh's configuration"
	}
	return out + ")"
}

// shorten joins texts as far as they fit.
func shorten(texts []string) string {
	all := strings.Join(texts, "\n")
	if len(all) <= maxText {
		return all
	}
	const more = " ..."
	return strings.ToValidUTF8(all[:maxText-len(more)], "") + more
}
