package derive

import (
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive/index"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

// inboundPort is one port that the workload serves.
type inboundPort struct {
	number   uint32 // that clients connect to
	protocol model.Protocol
	service  ir.ServiceRef
	port     uint32 // of the service, or the ingress listener's
	reached  uint32 // that clients call to come here: the service's; 0: there is no service
	pool     *model.ConnectionPool
	// address of the application; empty: where the connection was going.
	address string
	appPort uint32
	// own is set for ports with a listener of their own.
	own *model.IngressListener
	// tls is for clients that are no sidecars; nil: none. See inboundTLS.ends.
	tls *model.ServerTLS
	// retry is of requests to the application; nil: none.
	retry *model.Retry
	from  *model.Origins // that the port is there for
}

// isOwn tells whether a port is the one that redirected connections come to. Nothing can be behind it: what is let in
// there would come back for ever.
func (p *inboundPort) isOwn(mesh *model.Mesh) bool {
	return p.own == nil && p.number == mesh.InboundPort
}

// inboundPorts are the Sidecar's ingress listeners or, where it has none, the ports of the
// workload's services; the oldest service's say wins.
func (s *proxyGroup) inboundPorts(r *index.Reader) []inboundPort {
	if s.Sidecar != nil && len(s.Sidecar.Ingress) > 0 {
		return s.ingressPorts(s.servicePorts(r))
	}
	if s.Key.Interception == model.InterceptNone {
		return nil
	}
	out := s.servicePorts(r)
	if r.Mesh().LocalInbound && s.Key.Type == model.ProxySidecar {
		for i := range out {
			out[i].address, out[i].appPort = s.Local(), out[i].number
		}
	}
	return out
}

// servicePorts are those at which the workload's services reach it.
func (s *proxyGroup) servicePorts(r *index.Reader) []inboundPort {
	named := s.NamedPorts()
	var out []inboundPort
	for _, svc := range r.Selecting() {
		for i := range svc.Ports {
			if number, ok := index.TargetPort(svc.Ports[i], named); ok {
				out = s.addInboundPort(out, svc, &svc.Ports[i], number, nil)
			}
		}
	}
	for _, svc := range r.ServicesAt() {
		at := r.OriginsAt(svc, s.Key.IP)
		for i := range svc.Ports {
			if number, ok := r.PortAt(svc, s.Key.IP, &svc.Ports[i]); ok {
				out = s.addInboundPort(out, svc, &svc.Ports[i], number, at)
			}
		}
	}
	return out
}

// addInboundPort adds a port unless a service before has its number.
// at are the objects that list the workload's address for the service; nil: the service selects the workload.
func (s *proxyGroup) addInboundPort(out []inboundPort, svc *model.Service, p *model.ServicePort, number uint32, at *model.Origins) []inboundPort {
	if p.Protocol == model.ProtocolUDP || slices.ContainsFunc(out, func(o inboundPort) bool { return o.number == number }) {
		return out
	}
	return append(out, inboundPort{
		number: number, protocol: p.Protocol, port: p.Number, reached: p.Number, pool: s.inboundPool(),
		service: ir.ServiceRef{Host: svc.Hostname, Name: svc.Name, Namespace: svc.Namespace},
		from:    s.inboundFrom(svc).Union(at),
	})
}

// inboundFrom are a service that leads to a port, and the Sidecar where it limits connections there.
func (s *proxyGroup) inboundFrom(svc *model.Service) *model.Origins {
	if s.inboundPool() == nil {
		return model.OriginsOf(svc.Key)
	}
	return model.OriginsOf(svc.Key, s.Sidecar.Key)
}

func (s *proxyGroup) inboundPool() *model.ConnectionPool {
	if s.Sidecar == nil {
		return nil
	}
	return s.Sidecar.InboundPool
}

// poolOf is the Sidecar's, else what the service's DestinationRule says of the port that leads here, else the mesh's.
func poolOf(r *index.Reader, p *inboundPort) *model.ConnectionPool {
	if p.pool != nil {
		return p.pool
	}
	if p.reached != 0 {
		if own := portPolicy(r.ServedRule(p.service.Host, p.service.Namespace), p.reached).ConnectionPool; own != nil {
			return own
		}
	}
	return spoken(r.Mesh().Baseline.ConnectionPool, p.protocol)
}

// ingressPorts are the Sidecar's, each told as the service's that reaches the workload there.
func (s *proxyGroup) ingressPorts(served []inboundPort) []inboundPort {
	var out []inboundPort
	for i := range s.Sidecar.Ingress {
		in := &s.Sidecar.Ingress[i]
		p := inboundPort{number: in.Port.Number, port: in.Port.Number, protocol: in.Inner(), pool: in.Pool, tls: in.TLS}
		if p.pool == nil {
			p.pool = s.Sidecar.InboundPool
		}
		if i := slices.IndexFunc(served, func(o inboundPort) bool { return o.number == p.number }); i >= 0 {
			p.service, p.reached, p.from = served[i].service, served[i].reached, served[i].from
		}
		p.from = p.from.Union(model.OriginsOf(s.Sidecar.Key))
		p.address, p.appPort = s.application(in)
		if in.Capture == model.CaptureNone || in.Capture == model.CaptureDefault && s.Key.Interception == model.InterceptNone {
			p.own = in
		}
		out = append(out, p)
	}
	return out
}

// application is where an ingress listener's requests go: 0.0.0.0 means the workload's address.
func (s *proxyGroup) application(in *model.IngressListener) (string, uint32) {
	if in.Endpoint == "" {
		return s.Local(), in.Port.Number
	}
	if path, ok := strings.CutPrefix(in.Endpoint, "unix://"); ok {
		return path, 0
	}
	host, port, err := net.SplitHostPort(in.Endpoint)
	if err != nil {
		return s.Local(), in.Port.Number
	}
	if host == index.AnyAddress || host == index.AnyAddress6 {
		host = s.Key.IP
	}
	n, _ := strconv.ParseUint(port, 10, 32)
	return host, uint32(n)
}
