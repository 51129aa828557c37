package preview

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/diagnose/outcome"
)

// Request is what a caller asks for, as reports have it. Values of headers with credentials are hidden.
type Request struct {
	URL       string            `json:"url"`
	Method    string            `json:"method,omitempty"` // of HTTP and gRPC
	Headers   map[string]string `json:"headers,omitempty"`
	Principal string            `json:"principal,omitempty"` // in the certificate of a gateway's client
}

// String returns the request in one line. GET is left out.
func (r Request) String() string {
	out := r.URL
	if r.Method != "" && r.Method != http.MethodGet && !strings.HasPrefix(r.URL, "grpc") {
		out = r.Method + " " + out
	}
	for _, k := range slices.Sorted(maps.Keys(r.Headers)) {
		out += " " + k + ": " + r.Headers[k]
	}
	if r.Principal != "" {
		out += " with the certificate of " + r.Principal
	}
	return out
}

// request returns what a call asks for.
func (c *Call) request() Request {
	out := Request{URL: c.URL, Method: cmp.Or(c.Method, defaultMethod(c.URL)), Principal: c.Principal}
	for k, v := range c.Headers {
		if out.Headers == nil {
			out.Headers = map[string]string{}
		}
		out.Headers[k] = shown(k, v)
	}
	return out
}

// defaultMethod is the method of calls that give none; empty: the protocol has no methods.
func defaultMethod(url string) string {
	switch scheme, _, _ := strings.Cut(url, "://"); {
	case strings.HasPrefix(scheme, "http"):
		return http.MethodGet
	case strings.HasPrefix(scheme, "grpc"):
		return http.MethodPost
	}
	return ""
}

// distinct leaves out calls that others of the same caller equal.
func distinct(calls []Call) []Call {
	seen := map[string]bool{}
	return slices.DeleteFunc(calls, func(c Call) bool {
		text := fmt.Sprint([]string{c.From, c.URL, cmp.Or(c.Method, defaultMethod(c.URL)), c.Principal, c.Address}, c.Headers)
		defer func() { seen[text] = true }()
		return seen[text]
	})
}

// differences are calls by their host and how they change.
type differences map[string]*difference

// difference has the calls of one host that change in the same way.
type difference struct {
	host     string
	changes  []Change
	requests []string // in the order in which they were added
	called   map[string]*requested
}

// requested is a request with its callers.
type requested struct {
	Request
	from  map[string]bool
	count int
}

// add adds a call that changes.
func (g differences) add(call *Call, from []string, changes []Change) {
	host := call.URL
	if _, rest, ok := strings.Cut(host, "://"); ok {
		host, _, _ = strings.Cut(rest, "/")
	}
	key := fmt.Sprint(host, changes)
	d := g[key]
	if d == nil {
		d = &difference{host: host, changes: changes, called: map[string]*requested{}}
		g[key] = d
	}
	request := call.request()
	text := request.String()
	r := d.called[text]
	if r == nil {
		r = &requested{Request: request, from: map[string]bool{}}
		d.called[text] = r
		d.requests = append(d.requests, text)
	}
	r.count += len(from)
	for _, f := range from {
		r.from[f] = true
	}
}

// sorted returns the differences. In each, every caller makes every request.
func (g differences) sorted() []Difference {
	out := []Difference{}
	for _, d := range g {
		byCallers := map[string]*Difference{}
		for _, text := range d.requests {
			r := d.called[text]
			from := slices.Sorted(maps.Keys(r.from))
			key := strings.Join(from, " ")
			one := byCallers[key]
			if one == nil {
				one = &Difference{Host: d.host, From: from, Changes: d.changes}
				byCallers[key] = one
			}
			one.Calls, one.Count = append(one.Calls, r.Request), one.Count+r.count
		}
		for _, one := range byCallers {
			out = append(out, *one)
		}
	}
	slices.SortFunc(out, compareDifferences)
	return out
}

// compareDifferences puts first what changes earliest in a call.
func compareDifferences(a, b Difference) int {
	rank := func(d *Difference) int { return slices.Index(outcome.Properties, d.Changes[0].What) }
	first := func(d *Difference) string { return d.Host + d.Calls[0].String() + d.From[0] }
	return cmp.Or(rank(&a)-rank(&b), strings.Compare(first(&a), first(&b)))
}
