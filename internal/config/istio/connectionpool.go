package istio

import (
	networking "istio.io/api/networking/v1alpha3"

	"github.com/moonsail/moonsail/internal/model"
)

var upgrades = map[networking.ConnectionPoolSettings_HTTPSettings_H2UpgradePolicy]model.H2Upgrade{
	networking.ConnectionPoolSettings_HTTPSettings_DEFAULT:        model.H2UpgradeDefault,
	networking.ConnectionPoolSettings_HTTPSettings_DO_NOT_UPGRADE: model.H2UpgradeNever,
	networking.ConnectionPoolSettings_HTTPSettings_UPGRADE:        model.H2UpgradeAlways,
}

func (c *conv) connectionPool(at path, p *networking.ConnectionPoolSettings) *model.ConnectionPool {
	if p == nil {
		return nil
	}
	if p.Tcp == nil && p.Http == nil {
		c.errorf(at, "is empty; set tcp, http or both, or remove it")
	}
	out := &model.ConnectionPool{}
	if p.Tcp != nil {
		c.tcpPool(at.f("tcp"), p.Tcp, out)
	}
	if p.Http != nil {
		c.httpPool(at.f("http"), p.Http, out)
	}
	return out
}

func (c *conv) tcpPool(at path, p *networking.ConnectionPoolSettings_TCPSettings, out *model.ConnectionPool) {
	out.MaxConnections = c.count(at.f("maxConnections"), p.MaxConnections)
	out.ConnectTimeout = c.duration(at.f("connectTimeout"), p.ConnectTimeout)
	out.MaxConnectionDuration = c.duration(at.f("maxConnectionDuration"), p.MaxConnectionDuration)
	if p.IdleTimeout.AsDuration() != 0 {
		out.TCPIdleTimeout = c.duration(at.f("idleTimeout"), p.IdleTimeout)
	} else if p.IdleTimeout != nil {
		c.warnf(at.f("idleTimeout"), "0s, which means no timeout, is not supported yet; the default stays")
	}
	out.Keepalive = c.keepalive(at.f("tcpKeepalive"), p.TcpKeepalive)
}

func (c *conv) keepalive(at path, k *networking.ConnectionPoolSettings_TCPSettings_TcpKeepalive) *model.TCPKeepalive {
	if k == nil {
		return nil
	}
	return &model.TCPKeepalive{
		Probes:   k.Probes,
		Time:     c.duration(at.f("time"), k.Time),
		Interval: c.duration(at.f("interval"), k.Interval),
	}
}

func (c *conv) httpPool(at path, p *networking.ConnectionPoolSettings_HTTPSettings, out *model.ConnectionPool) {
	out.MaxPendingRequests = c.count(at.f("http1MaxPendingRequests"), p.Http1MaxPendingRequests)
	out.MaxRequests = c.count(at.f("http2MaxRequests"), p.Http2MaxRequests)
	out.MaxRequestsPerConnection = c.count(at.f("maxRequestsPerConnection"), p.MaxRequestsPerConnection)
	out.MaxRetries = c.count(at.f("maxRetries"), p.MaxRetries)
	out.HTTPIdleTimeout = c.optionalDuration(at.f("idleTimeout"), p.IdleTimeout)
	out.Upgrade = upgrades[p.H2UpgradePolicy]
	out.UseClientProtocol = p.UseClientProtocol
	out.MaxConcurrentStreams = c.count(at.f("maxConcurrentStreams"), p.MaxConcurrentStreams)
	if out.Upgrade == model.H2UpgradeAlways && p.UseClientProtocol {
		c.errorf(at.f("useClientProtocol"), "contradicts h2UpgradePolicy UPGRADE; remove one of the two")
	}
	if ka := p.Http2KeepAlive; ka != nil {
		at := at.f("http2KeepAlive")
		if ka.Interval == nil {
			c.errorf(at.f("interval"), "is missing; say how often to ping, such as 30s")
		}
		if ka.Timeout == nil {
			c.errorf(at.f("timeout"), "is missing; say how long to wait for an answer, such as 5s")
		}
		out.HTTP2Keepalive = &model.HTTP2Keepalive{
			Interval: c.duration(at.f("interval"), ka.Interval),
			Timeout:  c.duration(at.f("timeout"), ka.Timeout),
		}
	}
}

func (c *conv) outlierDetection(at path, o *networking.OutlierDetection) *model.OutlierDetection {
	if o == nil {
		return nil
	}
	out := &model.OutlierDetection{
		SplitExternalLocalOriginErrors: o.SplitExternalLocalOriginErrors,
		Interval:                       c.duration(at.f("interval"), o.Interval),
		BaseEjectionTime:               c.duration(at.f("baseEjectionTime"), o.BaseEjectionTime),
		MaxEjectionPercent:             uint32(c.percent(at.f("maxEjectionPercent"), float64(max(o.MaxEjectionPercent, -1)))),
		MinHealthPercent:               uint32(c.percent(at.f("minHealthPercent"), float64(max(o.MinHealthPercent, -1)))),
		HTTPErrorCodes:                 o.OutlierDetectionHttpErrorCodes,
	}
	if v := o.ConsecutiveLocalOriginFailures; v != nil {
		out.ConsecutiveLocalOriginFailures = &v.Value
		if !o.SplitExternalLocalOriginErrors && v.Value > 0 {
			c.errorf(at.f("consecutiveLocalOriginFailures"), "has no effect unless splitExternalLocalOriginErrors is true; set it")
		}
	}
	if v := o.ConsecutiveGatewayErrors; v != nil {
		out.ConsecutiveGatewayErrors = &v.Value
	}
	if v := o.Consecutive_5XxErrors; v != nil {
		out.Consecutive5xx = &v.Value
	}
	if old := o.ConsecutiveErrors; old != 0 { //nolint:staticcheck // still in use
		c.warnf(at.f("consecutiveErrors"), "is deprecated and has no effect; write consecutive5xxErrors: %d", old)
	}
	for i, code := range o.OutlierDetectionHttpErrorCodes {
		if code < 100 || code > 599 {
			c.errorf(at.f("outlierDetectionHttpErrorCodes").i(i), "%d is not an HTTP status; use 100 to 599", code)
		}
	}
	return out
}
