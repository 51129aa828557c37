package derive

import (
	"fmt"
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive/index"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

// deriveVirtualHost makes the virtual host of one host on one port.
func (s *proxyGroup) deriveVirtualHost(r *index.Reader, at placement, h model.Host, svc *model.Service, port *model.ServicePort, routes []*model.VirtualService, out *hostResult) *ir.VirtualHost {
	rt := &routing{Reader: r, s: s, host: h, service: svc, port: port, out: out}
	headers := s.Headers(r.Mesh())
	v := &ir.VirtualHost{
		RouteConfig:     at.routes.Name,
		Of:              at.routes,
		Host:            h,
		Name:            fmt.Sprintf("%s:%d", h, port.Number),
		Domains:         s.hostDomains(h, svc),
		IncludeAttempts: !headers.NoAttempts,
		ForwardHost:     headers.ForwardHost,
	}
	if at.sniffed {
		v.Domains = []string{"*"}
	}
	for i := 0; i < len(routes) && len(v.Routes) == 0; i++ {
		mark := r.Mark()
		if v.Routes = rt.fromVirtualService(routes[i]); len(v.Routes) == 0 {
			r.Unread(mark)
		}
	}
	if len(v.Routes) == 0 {
		for _, keeps := range routes { // others from being asked
			r.Use(keeps)
		}
	}
	if len(v.Routes) == 0 && svc != nil {
		// Nobody has a rule for this client and port.
		v.Routes = []ir.Route{rt.defaultRoute()}
	}
	v.HidesPeer = s.TellsPeer(r.Mesh()) && (svc == nil || !rt.allOfMesh(v.Routes))
	return v
}

// hostDomains are the names under which clients of the scope call a host, the full name
// first. Ports are ignored when domains are matched.
func (s *proxyGroup) hostDomains(h model.Host, svc *model.Service) []string {
	out := []string{string(h)}
	if svc == nil {
		return append(out, s.shortNames(string(h))...)
	}
	if svc.IsKubernetes() {
		out = append(out, s.shortNames(string(h))...)
	}
	if svc.IsKubernetes() && svc.Headless {
		for _, d := range slices.Clone(out) { // names of its Pods
			out = append(out, "*."+d)
		}
	}
	for _, a := range s.Addresses(svc) {
		if !a.IsSingleIP() {
			continue
		}
		text := a.Addr().String()
		if a.Addr().Is6() {
			text = "[" + text + "]"
		}
		if !slices.Contains(out, text) { // Envoy refuses a domain that is there twice
			out = append(out, text)
		}
	}
	return out
}

// shortNames of "reviews.shop.svc.cluster.local": "reviews.shop.svc", "reviews.shop" and,
// within its namespace, "reviews".
func (s *proxyGroup) shortNames(h string) []string {
	base, ok := strings.CutSuffix(h, "."+s.Key.Domain)
	if !ok {
		return nil
	}
	two, ok := strings.CutSuffix(base, ".svc")
	if !ok {
		return nil
	}
	out := []string{base, two}
	if name, ok := strings.CutSuffix(two, "."+s.Key.Namespace); ok && name != "*" && !strings.Contains(name, ".") {
		out = append(out, name)
	}
	return out
}
