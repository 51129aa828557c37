package explain

import (
	"slices"
	"strconv"
	"strings"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/distribution"
)

// reason removes the resource from a message. Envoy prints the whole resource before or after the problem,
// with the names of objects that are not meant.
func reason(message string) string {
	if i := strings.LastIndex(message, "Proto constraint validation failed"); i >= 0 {
		message = message[i:]
	}
	before, _, _ := strings.Cut(message, "goo.gle/debug")
	return before
}

// quoted returns the objects that a message quotes by words which the mesh's configuration does not have.
func (c *Causes) quoted(r *distribution.Refusal, message string, all []model.Key) []model.Key {
	var out []model.Key
	for _, k := range all {
		own := ownWords(c.snap.Get(k))
		if k.Kind == model.KindRequestAuthentication {
			own = c.providers(r, k)
		}
		if slices.ContainsFunc(own, func(w string) bool { return quotes(message, w) && !inMesh(c.mesh, w) }) {
			out = append(out, k)
		}
	}
	return out
}

// providers returns the names that Envoy has for the rules of a RequestAuthentication. They are numbers in
// the order in which derive puts the rules of all RequestAuthentications into a listener.
func (c *Causes) providers(r *distribution.Refusal, k model.Key) []string {
	var out []string
	for _, part := range r.About {
		var list []*model.RequestAuthentication
		for _, origin := range part.Entry.MadeFrom().Keys() {
			if a, ok := c.snap.Get(origin).(*model.RequestAuthentication); ok {
				list = append(list, a)
			}
		}
		model.SortPolicies(list, c.mesh.RootNamespace)
		n := 0
		for _, a := range list {
			for range a.Rules {
				if a.Key == k {
					out = append(out, "'origins-"+strconv.Itoa(n)+"'")
				}
				n++
			}
		}
	}
	return out
}

// ownWords returns Envoy's names for an object's part of a listener, and texts of the object that Envoy
// quotes.
func ownWords(o model.Object) []string {
	switch o := o.(type) {
	case *model.AuthorizationPolicy:
		return []string{"ns[" + o.Namespace + "]-policy[" + o.Name + "]-rule["}
	case *model.WasmPlugin:
		return []string{"/wasmplugin/" + o.Namespace + "." + o.Name, o.File}
	case *model.Telemetry:
		return expressions(o)
	}
	return nil
}

// expressions returns the expressions and formats of a Telemetry.
func expressions(t *model.Telemetry) []string {
	var out []string
	for _, l := range t.Logging {
		out = append(out, l.Filter)
	}
	for _, m := range t.Metrics {
		for _, o := range m.Overrides {
			for _, tag := range o.Tags {
				out = append(out, tag.Format)
			}
		}
	}
	for _, r := range t.Tracing {
		for _, tag := range r.Tags {
			out = append(out, tag.Format)
		}
	}
	return out
}

// quotesMesh reports whether a message quotes a file that the mesh's configuration tells proxies to write.
func (c *Causes) quotesMesh(message string) bool {
	return slices.ContainsFunc(meshFiles(c.mesh), func(file string) bool { return quotes(message, file) })
}

// meshFiles returns the files that the mesh's configuration tells proxies to write.
func meshFiles(m *model.Mesh) []string {
	out := []string{m.AccessLogFile}
	for i := range m.Telemetry.Providers {
		out = append(out, m.Telemetry.Providers[i].Log.Path)
	}
	return out
}

// inMesh reports whether the mesh's configuration has a text in a place where a Telemetry may have it, too.
func inMesh(m *model.Mesh, text string) bool {
	all := append(meshFiles(m), m.Telemetry.AccessLog.Text, m.Telemetry.AccessLog.JSON)
	for i := range m.Telemetry.Providers {
		all = append(all, m.Telemetry.Providers[i].Log.Text, m.Telemetry.Providers[i].Log.JSON)
	}
	for _, tag := range m.Telemetry.Tags {
		all = append(all, tag.Format)
	}
	return slices.ContainsFunc(all, func(s string) bool { return strings.Contains(s, text) })
}

// shortest is the minimum length in bytes of a text that does not occur in a message by chance.
const shortest = 6

// quotes reports whether a message has a text which is not the beginning of a longer name.
func quotes(message, text string) bool {
	if len(text) < shortest {
		return false
	}
	for {
		i := strings.Index(message, text)
		if i < 0 {
			return false
		}
		if message = message[i+len(text):]; message == "" || strings.HasSuffix(text, "[") || !goesOn(message) {
			return true
		}
	}
}

// goesOn reports whether a text begins with more characters of a name. A period may end a sentence.
func goesOn(rest string) bool {
	return nameByte(rest[0]) && rest[0] != '.' || rest[0] == '.' && len(rest) > 1 && nameByte(rest[1])
}

func nameByte(b byte) bool {
	return b >= 'a' && b <= 'z' || b >= '0' && b <= '9' || b == '-' || b == '.'
}
