package fleet

import (
	"hash/maphash"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Catalog knows every name and every version that a proxy of a fleet was ever sent. Proxies store numbers. The
// references of a resource are parsed once for each version.
type Catalog struct {
	follower *follower // of endpoints; nil: not requested

	mu    sync.RWMutex // guards all fields below, and those of names and versions
	names [Kinds]map[string]*name
	list  [Kinds][]*name
	round *Round
}

// NewCatalog returns an empty catalog.
func NewCatalog() *Catalog {
	c := &Catalog{}
	for k := range Kinds {
		c.names[k] = map[string]*name{}
	}
	return c
}

// name is the name of a resource.
type name struct {
	text     string
	id       int   // its index in Catalog.list
	parent   *name // of a virtual host: its route configuration
	versions []*version
	want     *want // of the current round
}

// version is one content of a resource.
type version struct {
	text string // the server's version, or a hash
	facts
	ends  *name  // cluster: its endpoints; nil: it needs none
	held  *Held  // of endpoints, if they are followed
	round *Round // the current round waits for it
	goal  goal
}

// held is what a proxy has of a name: an index of name.versions, plus one.
type held uint32

const (
	none   held = 0
	wanted held = 1<<32 - 1 // subscribed, not answered
	absent held = 1<<32 - 2 // subscribed, and does not exist
)

func (h held) has() bool { return h != none && h < absent }

// received is a resource of a response.
type received struct {
	name, version, any []byte
	removed            bool
}

// identify sets the version of a resource that its server sent without one (istiod): its hash.
func (in *received) identify() {
	if len(in.version) == 0 && !in.removed {
		in.version = strconv.AppendUint(nil, maphash.Bytes(seed, in.any), 16)
	}
}

var seed = maphash.MakeSeed()

// resolved is a resource by its numbers.
type resolved struct {
	name    *name
	version *version
	held    held
	goal    goal // of the round that it fulfils
}

// resolve finds the numbers of a message's resources, and adds new ones.
func (c *Catalog) resolve(k Kind, in []received, out []resolved) (_ []resolved, round *Round) {
	unknown := false
	for i := range in {
		in[i].identify()
	}
	c.mu.RLock()
	round = c.round
	for i := range in {
		r := c.find(k, &in[i])
		unknown = unknown || r.name == nil
		out = append(out, r)
	}
	c.mu.RUnlock()
	if !unknown {
		return out, round
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	round = c.round
	for i := range in {
		out[i] = c.find(k, &in[i])
		if out[i].name == nil {
			c.learn(k, &in[i])
			out[i] = c.find(k, &in[i])
		}
	}
	return out, round
}

// find returns a zero name if the name or the version is unknown.
func (c *Catalog) find(k Kind, in *received) resolved {
	n := c.names[k][string(in.name)]
	if n == nil {
		return resolved{}
	}
	if in.removed {
		return resolved{name: n, goal: n.goalGone()}
	}
	for i := len(n.versions) - 1; i >= 0; i-- {
		if v := n.versions[i]; v.text == string(in.version) {
			r := resolved{name: n, version: v, held: held(i + 1)}
			if r.goal = n.goalAny(); v.round != nil && v.round == c.round {
				r.goal = v.goal
			}
			return r
		}
	}
	return resolved{}
}

func (c *Catalog) learn(k Kind, in *received) {
	n := c.nameOf(k, string(in.name))
	if in.removed {
		return
	}
	v := &version{text: string(in.version), facts: parseFacts(k, in)}
	if v.endpoints != "" {
		v.ends = c.nameOf(EDS, v.endpoints)
	}
	if w := n.want; w != nil && !w.gone && (w.accept == nil || w.accept(in.any)) {
		v.round, v.goal = c.round, w.goal
	}
	if k == EDS && c.follower != nil {
		v.held = c.follower.learn(in)
	}
	n.versions = append(n.versions, v)
}

func (c *Catalog) nameOf(k Kind, text string) *name {
	n := c.names[k][text]
	if n == nil {
		n = &name{text: text, id: len(c.list[k])}
		if i := strings.IndexByte(text, '/'); k == VHDS && i >= 0 {
			n.parent = c.nameOf(RDS, text[:i])
		}
		c.names[k][text] = n
		c.list[k] = append(c.list[k], n)
	}
	return n
}

// ids returns the names' numbers, and adds new ones.
func (c *Catalog) ids(k Kind, names []string) []*name {
	out := make([]*name, len(names))
	c.mu.RLock()
	for i, t := range names {
		out[i] = c.names[k][t]
	}
	c.mu.RUnlock()
	if !slices.Contains(out, nil) {
		return out
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, t := range names {
		out[i] = c.nameOf(k, t)
	}
	return out
}

// text returns the name and version of numbers; it requires the lock.
func (c *Catalog) text(k Kind, id int, h held) (name, version string) {
	n := c.list[k][id]
	if h.has() {
		version = n.versions[h-1].text
	}
	return n.text, version
}

// versionOf returns the version of a name that a proxy has.
func (c *Catalog) versionOf(n *name, h held) *version {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return n.versions[h-1]
}
