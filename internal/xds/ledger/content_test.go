package ledger

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/moonsail/moonsail/internal/xds/resource"
)

// content is the content of a resource in these tests: a number that distinguishes versions, the
// resources that it refers to, and whether a proxy refuses it. It is encoded as field 15 of any
// message, so that virtual hosts can be joined to a whole route configuration.
type content struct {
	n    int
	refs []string // clusters; of a listener, route configurations ("rc:80"), scopes ("sc:80~2"), or that it requests scopes ("ask:")
	eds  bool     // a cluster with endpoints
	bad  bool
}

func (c content) encode(t resource.Type, name string) *resource.Encoded {
	s := fmt.Sprintf("%d;%s;%t;%t", c.n, strings.Join(c.refs, ","), c.eds, c.bad)
	value := protowire.AppendString(protowire.AppendTag(nil, 15, protowire.BytesType), s)
	e := resource.EncodeBytes(t, name, value)
	if t == resource.Listener && slices.ContainsFunc(c.refs, usesScopes) {
		e = resource.EncodeBytesScoped(name, value)
	}
	for _, ref := range c.refs {
		if rc, ok := strings.CutPrefix(ref, "rc:"); ok && t == resource.Listener {
			e.RouteConfigs = append(e.RouteConfigs, rc)
		}
	}
	return e
}

func decode(b []byte) (c content, hosts []content) {
	for len(b) > 0 {
		num, _, n := protowire.ConsumeTag(b)
		v, m := protowire.ConsumeBytes(b[n:])
		b = b[n+m:]
		if num == 2 {
			h, _ := decode(v)
			hosts = append(hosts, h)
			continue
		}
		f := strings.Split(string(v), ";")
		_, _ = fmt.Sscan(f[0], &c.n)
		if f[1] != "" {
			c.refs = strings.Split(f[1], ",")
		}
		c.eds, c.bad = f[2] == "true", f[3] == "true"
	}
	return c, hosts
}
