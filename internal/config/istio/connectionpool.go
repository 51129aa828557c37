package istio

import (
	"time"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/model"
)

var upgrades = map[networking.ConnectionPoolSettings_HTTPSettings_H2UpgradePolicy]model.H2Upgrade{
	networking.ConnectionPoolSettings_HTTPSettings_DEFAULT:        model.H2UpgradeDefault,
	networking.ConnectionPoolSettings_HTTPSettings_DO_NOT_UPGRADE: model.H2UpgradeNever,
	networking.ConnectionPoolSettings_HTTPSettings_UPGRADE:        model.H2UpgradeAlways,
}

func (c destinationConv) connectionPool(at problem.Path, p *networking.ConnectionPoolSettings) *model.ConnectionPool {
	if p == nil {
		return nil
	}
	if p.Tcp == nil && p.Http == nil {
		c.Errorf(code.EmptyValue, at, "is empty; set tcp, http or both, or remove it")
	}
	out := &model.ConnectionPool{}
	if p.Tcp != nil {
		c.tcpPool(at.Field("tcp"), p.Tcp, out)
	}
	if p.Http != nil {
		c.httpPool(at.Field("http"), p.Http, out)
	}
	return out
}

func (c destinationConv) tcpPool(at problem.Path, p *networking.ConnectionPoolSettings_TCPSettings, out *model.ConnectionPool) {
	out.MaxConnections = c.Count(at.Field("maxConnections"), p.MaxConnections)
	out.ConnectTimeout = c.Duration(at.Field("connectTimeout"), p.ConnectTimeout)
	out.MaxConnectionDuration = c.Duration(at.Field("maxConnectionDuration"), p.MaxConnectionDuration)
	if idle := p.IdleTimeout; idle != nil && idle.AsDuration() == 0 {
		out.TCPIdleTimeout = new(time.Duration)
	} else {
		out.TCPIdleTimeout = c.OptionalDuration(at.Field("idleTimeout"), idle)
	}
	out.Keepalive = c.keepalive(at.Field("tcpKeepalive"), p.TcpKeepalive)
}

func (c destinationConv) keepalive(at problem.Path, k *networking.ConnectionPoolSettings_TCPSettings_TcpKeepalive) *model.TCPKeepalive {
	if k == nil {
		return nil
	}
	return &model.TCPKeepalive{
		Probes:   k.Probes,
		Time:     c.Duration(at.Field("time"), k.Time),
		Interval: c.Duration(at.Field("interval"), k.Interval),
	}
}

func (c destinationConv) httpPool(at problem.Path, p *networking.ConnectionPoolSettings_HTTPSettings, out *model.ConnectionPool) {
	out.MaxPendingRequests = c.Count(at.Field("http1MaxPendingRequests"), p.Http1MaxPendingRequests)
	out.MaxRequests = c.Count(at.Field("http2MaxRequests"), p.Http2MaxRequests)
	out.MaxRequestsPerConnection = c.Count(at.Field("maxRequestsPerConnection"), p.MaxRequestsPerConnection)
	out.MaxRetries = c.Count(at.Field("maxRetries"), p.MaxRetries)
	out.HTTPIdleTimeout = c.OptionalDuration(at.Field("idleTimeout"), p.IdleTimeout)
	out.Upgrade = upgrades[p.H2UpgradePolicy]
	out.UseClientProtocol = p.UseClientProtocol
	out.MaxConcurrentStreams = c.Count(at.Field("maxConcurrentStreams"), p.MaxConcurrentStreams)
	if out.Upgrade == model.H2UpgradeAlways && p.UseClientProtocol {
		c.Errorf(code.ExclusiveFields, at.Field("useClientProtocol"), "contradicts h2UpgradePolicy UPGRADE; remove one of the two")
	}
	if ka := p.Http2KeepAlive; ka != nil {
		at := at.Field("http2KeepAlive")
		if ka.Interval == nil {
			c.Errorf(code.MissingField, at.Field("interval"), "is missing; set the time between pings, such as 30s")
		}
		if ka.Timeout == nil {
			c.Errorf(code.MissingField, at.Field("timeout"), "is missing; set the time to wait for an answer, such as 5s")
		}
		out.HTTP2Keepalive = &model.HTTP2Keepalive{
			Interval: c.Duration(at.Field("interval"), ka.Interval),
			Timeout:  c.Duration(at.Field("timeout"), ka.Timeout),
		}
	}
}

func (c destinationConv) outlierDetection(at problem.Path, o *networking.OutlierDetection) *model.OutlierDetection {
	if o == nil {
		return nil
	}
	out := &model.OutlierDetection{
		SplitExternalLocalOriginErrors: o.SplitExternalLocalOriginErrors,
		Interval:                       c.Duration(at.Field("interval"), o.Interval),
		BaseEjectionTime:               c.Duration(at.Field("baseEjectionTime"), o.BaseEjectionTime),
		MaxEjectionPercent:             uint32(c.Percent(at.Field("maxEjectionPercent"), float64(max(o.MaxEjectionPercent, -1)))),
		MinHealthPercent:               uint32(c.Percent(at.Field("minHealthPercent"), float64(max(o.MinHealthPercent, -1)))),
		HTTPErrorCodes:                 o.OutlierDetectionHttpErrorCodes,
	}
	if v := o.ConsecutiveLocalOriginFailures; v != nil {
		out.ConsecutiveLocalOriginFailures = &v.Value
		if !o.SplitExternalLocalOriginErrors && v.Value > 0 {
			c.Errorf(code.NotAllowedHere, at.Field("consecutiveLocalOriginFailures"), "has no effect unless splitExternalLocalOriginErrors is true; set it")
		}
	}
	if v := o.ConsecutiveGatewayErrors; v != nil {
		out.ConsecutiveGatewayErrors = &v.Value
	}
	if v := o.Consecutive_5XxErrors; v != nil {
		out.Consecutive5xx = &v.Value
	}
	if old := o.ConsecutiveErrors; old != 0 { //nolint:staticcheck // still in use
		c.Warnf(code.Deprecated, at.Field("consecutiveErrors"), "is deprecated and has no effect; write consecutive5xxErrors: %d", old)
	}
	for i, status := range o.OutlierDetectionHttpErrorCodes {
		if status < 100 || status > 599 {
			c.Errorf(code.InvalidNumber, at.Field("outlierDetectionHttpErrorCodes").Index(i), "%d is not an HTTP status; use 100 to 599", status)
		}
	}
	return out
}
