package explain

import (
	"slices"
	"strconv"
	"strings"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
	"github.com/moonsail/moonsail/internal/xds/distribution"
	"github.com/moonsail/moonsail/internal/xds/resource"
)

// Cause is what a refusal is about: one of Objects, in order, or Each of them. None: it comes from nobody's objects.
type Cause struct {
	Objects []model.Key
	// Sure: Envoy names the object, or quotes what only it has. Nothing else is proof: what shapes listeners,
	// as the mesh's configuration and Secrets do, is not all among Objects.
	Sure bool
	// Each: all Objects are meant, as they name the Secret that is refused.
	Each bool
	// Changed: all Objects have changed since a proxy that refuses it had it last.
	Changed bool
}

// Causes finds what refusals are about. It is for one snapshot and one goroutine.
type Causes struct {
	snap     *store.Snapshot
	changes  Changes
	mesh     *model.Mesh
	policies policies
}

// Causes finds them by a snapshot.
func (x *Explainer) Causes(snap *store.Snapshot) *Causes {
	mesh := x.mesh(snap)
	return &Causes{snap, x.Changes, mesh, policies{snap, mesh.RootNamespace, map[policyPlace][]model.Selecting{}}}
}

// Of is the cause of a refusal: of the objects that the refused is made of those that Envoy's words are
// about, and of these those that have changed since it took it; all, where neither tells.
func (c *Causes) Of(r *distribution.Refusal) Cause {
	all, listener := c.origins(r)
	if r.Type == resource.Secret {
		return Cause{Objects: all, Sure: true, Each: true}
	}
	message := reason(r.Message)
	if quoted := c.quoted(r, message, all); len(quoted) > 0 {
		return Cause{Objects: quoted, Sure: len(quoted) == 1}
	}
	switch {
	case listener && slices.ContainsFunc(meshFiles(c.mesh), func(file string) bool { return quotes(message, file) }):
		all = ofKinds(all, []model.Kind{model.KindTelemetry}) // they have it used
	case listener:
		all = onTopic(strings.ToLower(message), all)
	}
	news := slices.DeleteFunc(slices.Clone(all), func(k model.Key) bool { return !c.changedSince(k, r.Since) })
	if len(news) == 0 {
		return Cause{Objects: all, Sure: len(all) == 1 && ofOne(r)}
	}
	return Cause{Objects: news, Sure: len(news) == 1 && ofOne(r), Changed: r.Since > 0}
}

// ofOne tells whether the refused has its name of the one object that it is made of.
func ofOne(r *distribution.Refusal) bool {
	return r.Name != "" && (r.Type == resource.Extension || r.Type == resource.Bootstrap)
}

// origins are all objects that the refused is made of; listener: some of it is one.
func (c *Causes) origins(r *distribution.Refusal) (all []model.Key, listener bool) {
	for _, part := range r.About {
		listener = listener || part.Type == resource.Listener
		for _, k := range slices.Concat(Origins(c.snap, part), c.policies.behind(part)) {
			if !slices.Contains(all, k) {
				all = append(all, k)
			}
		}
	}
	return all, listener
}

// changedSince tells whether an object has changed after a revision.
func (c *Causes) changedSince(k model.Key, since model.Revision) bool {
	last, known := c.changes.LastChange(k)
	return known && last.Revision > since
}

// reason is a message without the whole resource, which Envoy prints before or after it says what is wrong with
// its form: it has the names of innocents.
func reason(message string) string {
	if i := strings.LastIndex(message, "Proto constraint validation failed"); i >= 0 {
		message = message[i:]
	}
	before, _, _ := strings.Cut(message, "goo.gle/debug")
	return before
}

// quoted are the objects of which a message quotes something that the mesh's configuration does not have.
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

// providers are the names that Envoy has for a RequestAuthentication's rules: their places among those of
// all that select the proxy.
func (c *Causes) providers(r *distribution.Refusal, k model.Key) []string {
	var out []string
	for _, part := range r.About {
		n := 0
		for _, a := range c.policies.authentications(part) {
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

// ownWords are what Envoy calls an object's part of a listener, or quotes of it.
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

// expressions are those that a Telemetry has.
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

// meshFiles are those that the mesh's configuration has proxies write.
func meshFiles(m *model.Mesh) []string {
	out := []string{m.AccessLogFile}
	for i := range m.Telemetry.Providers {
		out = append(out, m.Telemetry.Providers[i].Log.Path)
	}
	return out
}

// inMesh tells whether the mesh's configuration has a text where Telemetries may have it, too.
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

// shortest is how long words are at least that do not stand in a message by chance.
const shortest = 6

// quotes tells whether a message has a text that does not go on as a name.
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

// goesOn tells whether a text begins with more of a name; a point may end a sentence.
func goesOn(rest string) bool {
	return nameByte(rest[0]) && rest[0] != '.' || rest[0] == '.' && len(rest) > 1 && nameByte(rest[1])
}

// topics tell by Envoy's words, in lower case, which kinds of objects a listener is refused for.
var topics = []struct {
	words []string
	kinds []model.Kind
	only  bool // objects of other kinds never are the reason
}{
	{[]string{"cannot bind", "address already in use", "failed to bind"}, listening, true},
	{[]string{"jwt_authn", "jwtauthentication", "jwks"}, []model.Kind{model.KindRequestAuthentication}, false},
	{[]string{"wasm"}, []model.Kind{model.KindWasmPlugin}, false},
	{[]string{"rbac", "cidr range"}, []model.Kind{model.KindAuthorizationPolicy}, false},
	{
		[]string{"failed to create an expression", "parse filter expression", "streaminfo", "access log", "access_log", "formatter", "tracing"},
		[]model.Kind{model.KindTelemetry}, false,
	},
}

// listening are the kinds of objects that have proxies listen somewhere.
var listening = []model.Kind{model.KindGateway, model.KindKubernetesGateway, model.KindSidecar, model.KindServiceEntry}

// onTopic are those of objects that a message may be about.
func onTopic(message string, all []model.Key) []model.Key {
	for _, t := range topics {
		if !slices.ContainsFunc(t.words, func(w string) bool { return strings.Contains(message, w) }) {
			continue
		}
		if some := ofKinds(all, t.kinds); len(some) > 0 || t.only {
			return some
		}
	}
	return all
}

// ofKinds are those of some kinds, and EnvoyFilters, which may be behind anything.
func ofKinds(all []model.Key, kinds []model.Kind) []model.Key {
	return slices.DeleteFunc(slices.Clone(all), func(k model.Key) bool {
		return k.Kind != model.KindEnvoyFilter && !slices.Contains(kinds, k.Kind)
	})
}
