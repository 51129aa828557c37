package meshtest

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/moonsail/moonsail/internal/diagnose/simulate"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

// Case is one call with its expected result.
type Case struct {
	Name  string
	Proxy string // name; the first one where empty
	Call  Request
	Want  any
}

// Request is a call in the notation of tests.
type Request struct {
	URL           string
	simulate.Call `yaml:",inline"`
}

// UnmarshalYAML reads a map, or "METHOD URL", or "URL".
func (r *Request) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind != yaml.ScalarNode {
		type plain Request
		text, err := yaml.Marshal(n)
		if err != nil {
			return err
		}
		return strict(text, (*plain)(r)) // n.Decode would let unknown fields pass
	}
	method, address, both := strings.Cut(n.Value, " ")
	if !both {
		method, address = "", method
	}
	r.Method, r.URL = method, address
	return nil
}

// elsewhere is the address of all unknown names.
const elsewhere = "198.51.100.7"

// prepare converts the URL into the call that an application would make.
func (f *File) prepare(c *Case) error {
	p, err := f.proxy(c.Proxy)
	if err != nil {
		return err
	}
	if c.Name == "" {
		c.Name = strings.TrimSpace(c.Call.Method + " " + c.Call.URL)
	}
	if c.Call.URL == "" {
		return nil
	}
	u, err := url.Parse(c.Call.URL)
	if err != nil {
		return err
	}
	call := &c.Call.Call
	port := u.Port()
	if port == "" {
		port = map[string]string{"https": "443", "tls": "443"}[u.Scheme]
	}
	if port == "" {
		port = "80"
	}
	set := func(to *string, v string) {
		if *to == "" {
			*to = v
		}
	}
	set(&call.To, net.JoinHostPort(f.resolve(p, u.Hostname()), port))
	set((*string)(&call.Protocol), u.Scheme)
	set(&call.Host, u.Host)
	set(&call.Path, u.RequestURI())
	if _, err := netip.ParseAddr(u.Hostname()); err != nil && (u.Scheme == "tls" || u.Scheme == "https") {
		set(&call.SNI, u.Hostname())
	}
	// Without interception, applications call their sidecar directly. Routers are called at their own address.
	call.Direct = call.Direct || p.Type == model.ProxyRouter || p.Interception == model.InterceptNone && !call.Inbound
	return nil
}

// resolve acts as the resolver of an application in p's pod.
func (f *File) resolve(p *Proxy, name string) string {
	if _, err := netip.ParseAddr(name); err == nil {
		return name
	}
	if a := f.dns[name]; a != "" {
		return a
	}
	if p.Type == model.ProxyRouter {
		return p.IP
	}
	if p.Interception == model.InterceptNone {
		return "127.0.0.1"
	}
	names := map[string]*ir.Names{}
	if p.DNSCapture {
		names = f.names(p)
	}
	for _, search := range []string{"", p.Namespace + ".svc." + f.Mesh.Domain, "svc." + f.Mesh.Domain, f.Mesh.Domain} {
		full := strings.ToLower(strings.TrimSuffix(name+"."+search, "."))
		if n := names[full]; n != nil {
			return n.Addresses[0]
		}
		if a := f.address(model.Host(full)); a != "" {
			return a
		}
	}
	return elsewhere
}

// names returns the names in the DNS proxy of a sidecar.
func (f *File) names(p *Proxy) map[string]*ir.Names {
	d := f.derive()
	proxy := p.Model(f.Mesh.Domain)
	proxy.Names = true
	names, _ := d.Index().Keys(proxy)
	return d.Open(names).Names
}

// address returns the address of a service's host in DNS.
func (f *File) address(h model.Host) string {
	for _, o := range f.Objects {
		switch o := o.(type) {
		case *model.Service:
			if o.Hostname == h {
				return f.serviceAddress(o)
			}
		case *model.ServiceEntry:
			for _, s := range o.Services() {
				if s.Hostname == h && len(s.Addresses) > 0 {
					return s.Addresses[0].Addr().String()
				}
			}
		}
	}
	return ""
}

// serviceAddress returns the cluster IP, or the first endpoint of a headless service.
func (f *File) serviceAddress(s *model.Service) string {
	if len(s.Addresses) > 0 {
		return s.Addresses[0].Addr().String()
	}
	for _, o := range f.Objects {
		slice, ok := o.(*model.EndpointSlice)
		if ok && slice.Namespace == s.Namespace && slice.Service == s.Name && len(slice.Members) > 0 {
			return slice.Members[0].Addresses[0]
		}
	}
	return ""
}

// String describes the call in reports.
func (r *Request) String() string {
	return fmt.Sprintf("%s %s to %s", r.Method, r.URL, r.To)
}
