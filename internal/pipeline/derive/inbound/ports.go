package inbound

import (
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive/index"
	"github.com/moonsail/moonsail/internal/pipeline/derive/policy"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

// port is one port that the workload serves.
type port struct {
	number   uint32 // that clients connect to
	protocol model.Protocol
	service  ir.ServiceRef
	// others are the hosts of further services with the port. EnvoyFilters match the cluster by them.
	others     []model.Host
	othersFrom *model.Origins
	port       uint32 // of the service, or the ingress listener's
	called     uint32 // the service's port that leads here; 0: there is no service
	pool       *model.ConnectionPool
	// address of the application; empty: the original destination.
	address string
	appPort uint32
	// own is set for ports with a listener of their own.
	own *model.IngressListener
	// tls is for clients without a sidecar; nil: none. See serverTLS.ends.
	tls *model.ServerTLS
	// retry is for requests to the application; nil: none.
	retry *model.Retry
	from  *model.Origins // that the port is made from
}

// isSidecars reports whether a port is the one that receives redirected connections. No application can be behind it:
// accepted connections would come back for ever.
func (p *port) isSidecars(mesh *model.Mesh) bool {
	return p.own == nil && p.number == mesh.InboundPort
}

// portsOf are the Sidecar's ingress listeners or, without any, the ports of the workload's services. The oldest service
// wins.
func portsOf(r *index.Reader) []port {
	if r.Sidecar != nil && len(r.Sidecar.Ingress) > 0 {
		return ingressPorts(r.Client, servicePorts(r))
	}
	if r.Key.Interception == model.InterceptNone {
		return nil
	}
	out := servicePorts(r)
	if r.Mesh().LocalInbound && r.Key.Type == model.ProxySidecar {
		for i := range out {
			out[i].address, out[i].appPort = r.Local(), out[i].number
		}
	}
	return out
}

// servicePorts are those at which services reach the workload.
func servicePorts(r *index.Reader) []port {
	var out []port
	for _, s := range r.Served() {
		out = addPort(r.Client, out, s)
	}
	return out
}

// addPort adds a port. If an earlier service has its number, only the name of the later one counts.
func addPort(c *index.Client, out []port, s index.ServedPort) []port {
	if s.Port.Protocol == model.ProtocolUDP {
		return out
	}
	if i := slices.IndexFunc(out, func(o port) bool { return o.number == s.Number }); i >= 0 {
		if h := s.Service.Hostname; !slices.Contains(out[i].others, h) && h != out[i].service.Host {
			out[i].others = append(out[i].others, h)
			out[i].othersFrom = out[i].othersFrom.Union(model.OriginsOf(s.Service.Key).Union(s.Origins))
		}
		return out
	}
	return append(out, port{
		number: s.Number, protocol: s.Port.Protocol, port: s.Port.Number, called: s.Port.Number, pool: sidecarPool(c),
		service: ir.ServiceRef{Host: s.Service.Hostname, Name: s.Service.Name, Namespace: s.Service.Namespace},
		from:    portOrigins(c, s.Service).Union(s.Origins),
	})
}

// portOrigins are a service that leads to a port, and the Sidecar if it limits connections there.
func portOrigins(c *index.Client, svc *model.Service) *model.Origins {
	if sidecarPool(c) == nil {
		return model.OriginsOf(svc.Key)
	}
	return model.OriginsOf(svc.Key, c.Sidecar.Key)
}

func sidecarPool(c *index.Client) *model.ConnectionPool {
	if c.Sidecar == nil {
		return nil
	}
	return c.Sidecar.InboundPool
}

// poolOf is the Sidecar's, else that of the service's DestinationRule for the port that leads here, else the mesh's.
func poolOf(r *index.Reader, p *port) *model.ConnectionPool {
	if p.pool != nil {
		return p.pool
	}
	if p.called != 0 {
		if own := policy.ForPort(r.ServedRule(p.service.Host, p.service.Namespace), p.called).ConnectionPool; own != nil {
			return own
		}
	}
	return policy.PoolFor(r.Mesh().Baseline.ConnectionPool, p.protocol)
}

// ingressPorts are the Sidecar's, with the service that reaches the workload at each.
func ingressPorts(c *index.Client, served []port) []port {
	var out []port
	for i := range c.Sidecar.Ingress {
		in := &c.Sidecar.Ingress[i]
		p := port{number: in.Port.Number, port: in.Port.Number, protocol: in.Inner(), pool: in.Pool, tls: in.TLS}
		if p.pool == nil {
			p.pool = c.Sidecar.InboundPool
		}
		if i := slices.IndexFunc(served, func(o port) bool { return o.number == p.number }); i >= 0 {
			o := &served[i]
			p.service, p.others, p.othersFrom, p.called, p.from = o.service, o.others, o.othersFrom, o.called, o.from
		}
		p.from = p.from.Union(model.OriginsOf(c.Sidecar.Key))
		p.address, p.appPort = application(c, in)
		if in.CaptureNone(c.Key.Interception) {
			p.own = in
			if in.Endpoint == "" { // there is no original destination
				p.address, p.appPort = c.Local(), p.number
			}
		}
		out = append(out, p)
	}
	return out
}

// application is where an ingress listener sends requests: an empty address is the original destination, 0.0.0.0 means the
// workload's address, and the loopback address is that of the proxies' family.
func application(c *index.Client, in *model.IngressListener) (string, uint32) {
	if in.Endpoint == "" {
		return "", 0
	}
	if path, ok := strings.CutPrefix(in.Endpoint, "unix://"); ok {
		return path, 0
	}
	host, text, err := net.SplitHostPort(in.Endpoint)
	if err != nil {
		return c.Local(), in.Port.Number
	}
	switch ip, _ := netip.ParseAddr(host); {
	case ip.IsUnspecified():
		host = c.Key.IP
	case ip.IsLoopback() && c.Key.Families != model.DualStack:
		host = c.Local()
	}
	n, _ := strconv.ParseUint(text, 10, 32)
	return host, uint32(n)
}
