package derive

import (
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/moonsail/moonsail/internal/model"
)

// ingressPorts are the Sidecar's, each told as the service's that reaches the workload there.
func (s *scope) ingressPorts(served []inboundPort) []inboundPort {
	var out []inboundPort
	for i := range s.sidecar.Ingress {
		in := &s.sidecar.Ingress[i]
		p := inboundPort{number: in.Port.Number, port: in.Port.Number, protocol: in.Inner(), pool: in.Pool, tls: in.TLS}
		if p.pool == nil {
			p.pool = s.sidecar.InboundPool
		}
		if i := slices.IndexFunc(served, func(o inboundPort) bool { return o.number == p.number }); i >= 0 {
			p.service, p.reached = served[i].service, served[i].reached
		}
		p.address, p.appPort = s.application(in)
		if in.Capture == model.CaptureNone || in.Capture == model.CaptureDefault && s.Key.Interception == model.InterceptNone {
			p.own = in
		}
		out = append(out, p)
	}
	return out
}

// application is where an ingress listener's requests go: 0.0.0.0 means the workload's address.
func (s *scope) application(in *model.IngressListener) (string, uint32) {
	if in.Endpoint == "" {
		return s.local(), in.Port.Number
	}
	if path, ok := strings.CutPrefix(in.Endpoint, "unix://"); ok {
		return path, 0
	}
	host, port, err := net.SplitHostPort(in.Endpoint)
	if err != nil {
		return s.local(), in.Port.Number
	}
	if host == anyAddress || host == anyAddress6 {
		host = s.Key.IP
	}
	n, _ := strconv.ParseUint(port, 10, 32)
	return host, uint32(n)
}
