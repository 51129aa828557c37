package ledger

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/names"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/table"
)

var update = flag.Bool("update", false, "write the results to testdata")

// TestTranscripts plays testdata/*.txt. Each block is a command, and below it what the ledger does.
// The commands are:
//
//	stream <delta|sotw> <rds|vhds|scoped>   a new stream, bound to the tables out and in
//	commit <table> <revision>        then a line for each resource: <type> <name> [content], or -<type> <name>;
//	                                 after a listener's content rc:<name>, which it requests, or sc:<name>, which are scopes
//	request <type> [nonce=<n>] [nack=<message>] [+name] [-name] [name=<content>] [name]
//	                                 name=<content> is an entry of initial_resource_versions (a comma in <content> is a
//	                                 space), a bare name one of resource_names; ~ in a message is a space
//	ack                              every response that is not answered
//	late <type>                      the answer to the newest response is late
//	bind <table> <table>
//
// The output is what is sent, as <type> <nonce>: <name>=<content>, and what is settled.
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, f := range files {
		t.Run(strings.TrimSuffix(filepath.Base(f), ".txt"), func(t *testing.T) {
			b, err := os.ReadFile(f)
			require.NoError(t, err)
			got := play(t, string(b))
			if *update {
				require.NoError(t, os.WriteFile(f, []byte(got), 0o644))
				return
			}
			require.Equal(t, string(b), got)
		})
	}
}

// player is a stream and its tables.
type player struct {
	t      *testing.T
	pool   *names.Pool
	tables map[string]*table.Table
	bound  []string
	ledger *Ledger
	open   []Response
}

// play runs a transcript and returns it with the output filled in.
func play(t *testing.T, in string) string {
	p := &player{t: t, pool: names.NewPool(), tables: map[string]*table.Table{}, bound: []string{"out", "in"}}
	var out strings.Builder
	for _, block := range strings.Split(strings.TrimRight(in, "\n"), "\n\n") {
		command, _, _ := strings.Cut(block, "\n----")
		fmt.Fprintf(&out, "%s\n", command)
		if !strings.HasPrefix(command, "#") || strings.Contains(command, "\n") && !allComments(command) {
			fmt.Fprintf(&out, "----\n%s", p.run(command))
		}
		out.WriteString("\n")
	}
	return strings.TrimRight(out.String(), "\n") + "\n"
}

func allComments(s string) bool {
	for _, l := range strings.Split(s, "\n") {
		if !strings.HasPrefix(l, "#") {
			return false
		}
	}
	return true
}

func (p *player) run(command string) string {
	lines := slices.DeleteFunc(strings.Split(command, "\n"), func(l string) bool { return strings.HasPrefix(l, "#") })
	f := strings.Fields(lines[0])
	switch f[0] {
	case "stream":
		p.ledger, p.open = New(map[string]Protocol{"delta": Delta, "sotw": Sotw}[f[1]], map[string]*Strategy{"rds": WholeRoutes, "vhds": VirtualHosts, "scoped": ScopedRoutes}[f[2]], p.pool, p.states()), nil
	case "commit":
		rev, err := strconv.ParseUint(f[2], 10, 64)
		require.NoError(p.t, err)
		p.table(f[1]).Commit(model.Revision(rev), p.updates(lines[1:]))
	case "request":
		require.True(p.t, p.ledger.Handle(p.request(f[1:])))
		p.open = slices.DeleteFunc(p.open, func(r Response) bool { return !p.ledger.InFlight(r.Type) })
	case "ack":
		for _, r := range p.open {
			p.ledger.Handle(&Request{TypeURL: []byte(r.Type.URL()), Nonce: fmt.Append(nil, r.Nonce)})
		}
		p.open = nil
	case "late":
		p.ledger.Overdue(typeNames[f[1]])
	case "again":
		p.ledger.Retry(typeNames[f[1]], true, 9, func(message string) bool { return message == f[2] })
	case "bind":
		p.bound = f[1:]
	default:
		p.t.Fatalf("unknown command %q", f[0])
	}
	return p.happens()
}

func (p *player) happens() string {
	if p.ledger == nil {
		return ""
	}
	p.ledger.Update(p.states())
	var out strings.Builder
	for _, r := range p.ledger.Next(nil) {
		p.open = append(p.open, r)
		fmt.Fprintf(&out, "%s %d:", r.Type, r.Nonce)
		for e := range (&flight{parts: r.Parts}).entries() {
			c, hosts := decode(e.Resource().Value())
			fmt.Fprintf(&out, " %s=%d", e.Name, c.n)
			for _, h := range hosts {
				fmt.Fprintf(&out, "/%d", h.n)
			}
		}
		for _, n := range r.Removed {
			fmt.Fprintf(&out, " -%s", n)
		}
		out.WriteString("\n")
	}
	rev, refused := p.ledger.Settle()
	fmt.Fprintf(&out, "settled %d", rev)
	if refused != (Span{}) {
		out.WriteString(", refused")
	}
	for _, t := range p.ledger.Types() {
		for _, h := range t.Held {
			fmt.Fprintf(&out, ", %s %s is held back: %s", t.Type, h.Name, h.Message)
		}
	}
	if p.ledger.Waiting() {
		out.WriteString(", waiting")
	}
	return out.String() + "\n"
}

func (p *player) table(name string) *table.Table {
	if p.tables[name] == nil {
		p.tables[name] = table.New(name)
	}
	return p.tables[name]
}

func (p *player) states() (out []*table.State) {
	for _, n := range p.bound {
		out = append(out, p.table(n).State())
	}
	return out
}

var typeNames = map[string]resource.Type{"CDS": resource.Cluster, "EDS": resource.Endpoints, "SDS": resource.Secret, "SRDS": resource.Scope, "LDS": resource.Listener, "RDS": resource.RouteConfig, "VHDS": resource.VirtualHost, "NDS": resource.NameTable}

// updates parses resources. RDS is for both forms of a route configuration.
func (p *player) updates(lines []string) (out []table.Update) {
	for _, l := range lines {
		f := strings.Fields(l)
		name, gone := strings.CutPrefix(f[0], "-")
		t, ok := typeNames[name]
		require.True(p.t, ok, l)
		types := []resource.Type{t}
		if t == resource.RouteConfig {
			types = append(types, resource.VHDSRouteConfig)
		}
		for _, t := range types {
			u := table.Update{Type: t, Name: f[1]}
			if !gone {
				u.Resource = p.content(f[2:]).encode(t, f[1])
			}
			out = append(out, u)
		}
	}
	return out
}

func (p *player) content(f []string) (c content) {
	if len(f) > 0 {
		n, err := strconv.Atoi(f[0])
		require.NoError(p.t, err)
		c.n, c.refs = n, f[1:]
	}
	return c
}

func (p *player) request(f []string) *Request {
	t := typeNames[f[0]]
	r := &Request{TypeURL: []byte(t.URL())}
	if t == resource.RouteConfig {
		t = p.ledger.Strategy().Routes
	}
	for _, a := range f[1:] {
		key, value, pair := strings.Cut(a, "=")
		switch {
		case key == "nonce":
			r.Nonce = []byte(value)
		case key == "nack":
			r.Error = &Error{Message: strings.ReplaceAll(value, "~", " ")}
		case strings.HasPrefix(a, "+"):
			r.Subscribe = append(r.Subscribe, []byte(a[1:]))
		case strings.HasPrefix(a, "-"):
			r.Unsubscribe = append(r.Unsubscribe, []byte(a[1:]))
		case pair:
			r.Initial = append(r.Initial, NameVersion{[]byte(key), []byte(p.content(strings.Split(value, ",")).encode(t, key).Version)})
		default:
			r.Names = append(r.Names, []byte(a))
		}
	}
	return r
}
