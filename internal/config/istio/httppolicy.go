package istio

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/config/spelling"
	"github.com/moonsail/moonsail/internal/model"
)

// retryConditions are the words of Envoy's x-envoy-retry-on and x-envoy-retry-grpc-on.
var retryConditions = []string{
	"5xx", "gateway-error", "reset", "reset-before-request", "connect-failure", "retriable-4xx",
	"refused-stream", "retriable-status-codes", "retriable-headers", "envoy-ratelimited",
	"http3-post-connect-failure", "cancelled", "deadline-exceeded", "internal",
	"resource-exhausted", "unavailable",
}

// grpcCodes are the names of gRPC's status codes.
var grpcCodes = []string{
	"OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND",
	"ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED",
	"OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED",
}

var corsMethods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "CONNECT", "OPTIONS", "TRACE", "*"}

func (c *routeConv) retry(at problem.Path, r *networking.HTTPRetry) *model.Retry {
	if r == nil {
		return nil
	}
	out := &model.Retry{
		Attempts:              c.Count(at.Field("attempts"), r.Attempts),
		PerTryTimeout:         c.Duration(at.Field("perTryTimeout"), r.PerTryTimeout),
		Backoff:               c.Duration(at.Field("backoff"), r.Backoff),
		RetryOn:               c.retryOn(at.Field("retryOn"), r.RetryOn),
		RetryRemoteLocalities: r.RetryRemoteLocalities.GetValue(),
	}
	if p := r.RetryIgnorePreviousHosts; p != nil {
		v := p.GetValue()
		out.IgnorePreviousHostsFlag = &v
	}
	if r.Attempts == 0 && (r.PerTryTimeout != nil || r.RetryOn != "" || r.RetryRemoteLocalities != nil) {
		c.Errorf(code.NotAllowedHere, at.Field("attempts"), "0 attempts switch retries off, so the other settings have no effect; set attempts, or remove them")
	}
	return out
}

// retryOn takes Envoy's words and HTTP status codes, in any mixture.
func (c *routeConv) retryOn(at problem.Path, s string) string {
	if s == "" {
		return ""
	}
	words := strings.Split(s, ",")
	for i, w := range words {
		words[i] = strings.TrimSpace(w)
		if code, err := strconv.Atoi(words[i]); err == nil && http.StatusText(code) != "" {
			continue
		}
		if !slices.Contains(retryConditions, words[i]) {
			c.Errorf(code.UnknownValue, at, "%q is not a reason to retry%s; use Envoy's conditions, such as 5xx or connect-failure, and HTTP status codes",
				words[i], spelling.DidYouMean(words[i], retryConditions))
		}
	}
	return strings.Join(words, ",")
}

func (c *routeConv) fault(at problem.Path, f *networking.HTTPFaultInjection) *model.Fault {
	if f == nil {
		return nil
	}
	out := &model.Fault{}
	if f.Delay == nil && f.Abort == nil {
		c.Errorf(code.EmptyValue, at, "does nothing; set delay, abort or both")
	}
	if f.Delay != nil {
		c.delay(at.Field("delay"), f.Delay, out)
	}
	if f.Abort != nil {
		c.abort(at.Field("abort"), f.Abort, out)
	}
	return out
}

func (c *routeConv) delay(at problem.Path, d *networking.HTTPFaultInjection_Delay, out *model.Fault) {
	switch v := d.HttpDelayType.(type) {
	case *networking.HTTPFaultInjection_Delay_FixedDelay:
		out.Delay = c.Duration(at.Field("fixedDelay"), v.FixedDelay)
	case *networking.HTTPFaultInjection_Delay_ExponentialDelay:
		c.Errorf(code.NotSupported, at.Field("exponentialDelay"), "is not supported; use fixedDelay")
	default:
		c.Warnf(code.MissingField, at.Field("fixedDelay"), "is missing, so nothing is delayed; set a duration, such as 2s")
	}
	switch old := d.Percent; { //nolint:staticcheck // still in use
	case d.Percentage != nil:
		out.DelayPercent = c.faultPercent(at.Field("percentage").Field("value"), d.Percentage)
	case old != 0:
		c.Warnf(code.Deprecated, at.Field("percent"), "is deprecated; write percentage: {value: %d}", old)
		out.DelayPercent = c.Percent(at.Field("percent"), float64(old))
	default:
		c.Warnf(code.MissingField, at, "delays no request, since percentage is missing; write percentage: {value: 100} to delay all")
	}
}

func (c *routeConv) abort(at problem.Path, a *networking.HTTPFaultInjection_Abort, out *model.Fault) {
	if a.Percentage != nil {
		out.AbortPercent = c.faultPercent(at.Field("percentage").Field("value"), a.Percentage)
	} else {
		c.Warnf(code.MissingField, at, "aborts no request, since percentage is missing; write percentage: {value: 100} to abort all")
	}
	switch v := a.ErrorType.(type) {
	case *networking.HTTPFaultInjection_Abort_HttpStatus:
		c.httpStatus(at.Field("httpStatus"), uint32(max(v.HttpStatus, 0)))
		out.AbortHTTP = uint32(max(v.HttpStatus, 0))
	case *networking.HTTPFaultInjection_Abort_GrpcStatus:
		if !slices.Contains(grpcCodes, v.GrpcStatus) {
			c.Errorf(code.UnknownValue, at.Field("grpcStatus"), "%q is not a gRPC status%s; use a name such as UNAVAILABLE",
				v.GrpcStatus, spelling.DidYouMean(v.GrpcStatus, grpcCodes))
		}
		out.AbortGRPC = v.GrpcStatus
	case *networking.HTTPFaultInjection_Abort_Http2Error:
		c.Errorf(code.NotSupported, at.Field("http2Error"), "is not supported; use httpStatus or grpcStatus")
	default:
		c.Warnf(code.EmptyValue, at, "aborts nothing, since neither httpStatus nor grpcStatus is set")
	}
}

// faultPercent checks a share of requests; Envoy counts in millionths.
func (c *routeConv) faultPercent(at problem.Path, p *networking.Percent) float64 {
	if p.Value > 0 && p.Value < 0.0001 {
		c.Errorf(code.InvalidNumber, at, "%v is too small; use 0, or 0.0001 to 100", p.Value)
	}
	return c.Percent(at, p.Value)
}

// mirrors reads both the list and the older single mirror. Those of 0 percent stay: in a delegate's rule they replace the
// delegating rule's.
func (c *routeConv) mirrors(at problem.Path, r *networking.HTTPRoute) *model.Mirrors {
	out := &model.Mirrors{Percent: c.mirrorPercent(at, r)}
	if r.Mirror != nil {
		d := virtualServiceConv{c.Converter}.destination(at.Field("mirror"), r.Mirror)
		out.Single = &d
	}
	for i, p := range r.Mirrors {
		at := at.Field("mirrors").Index(i)
		m := model.Mirror{Destination: virtualServiceConv{c.Converter}.destination(at.Field("destination"), p.Destination), Percent: 100}
		if p.Percentage != nil {
			m.Percent = c.Percent(at.Field("percentage").Field("value"), p.Percentage.Value)
		}
		out.List = append(out.List, m)
	}
	if out.Single == nil && out.Percent == nil && out.List == nil {
		return nil
	}
	return out
}

// mirrorPercent is the share of requests that the single mirror gets; nil: unset.
func (c *routeConv) mirrorPercent(at problem.Path, r *networking.HTTPRoute) *float64 {
	old := r.MirrorPercent //nolint:staticcheck // still in use
	if old != nil {
		c.Warnf(code.Deprecated, at.Field("mirrorPercent"), "is deprecated; write mirrorPercentage: {value: %d}", old.Value)
	}
	var percent float64
	switch {
	case r.MirrorPercentage != nil:
		percent = c.Percent(at.Field("mirrorPercentage").Field("value"), r.MirrorPercentage.Value)
	case old != nil:
		percent = c.Percent(at.Field("mirrorPercent"), float64(old.Value))
	default:
		return nil
	}
	return &percent
}

func (c *routeConv) cors(at problem.Path, p *networking.CorsPolicy) *model.CORS {
	if p == nil {
		return nil
	}
	out := &model.CORS{
		AllowOrigins: c.origins(at, p), AllowMethods: p.AllowMethods,
		AllowHeaders: p.AllowHeaders, ExposeHeaders: p.ExposeHeaders,
		MaxAge: c.OptionalDuration(at.Field("maxAge"), p.MaxAge),
	}
	if out.MaxAge != nil && *out.MaxAge%time.Second != 0 {
		c.Errorf(code.InvalidDuration, at.Field("maxAge"), "%s is too fine; use whole seconds", *out.MaxAge)
	}
	if p.AllowCredentials != nil {
		v := p.AllowCredentials.GetValue()
		out.AllowCredentials = &v
	}
	if p.UnmatchedPreflights == networking.CorsPolicy_IGNORE {
		no := false
		out.ForwardUnmatched = &no
	}
	for i, m := range p.AllowMethods {
		if !slices.Contains(corsMethods, m) {
			c.Errorf(code.UnknownValue, at.Field("allowMethods").Index(i), "%q is not an HTTP method%s", m, spelling.DidYouMean(m, corsMethods))
		}
	}
	for i, h := range p.AllowHeaders {
		c.HeaderName(at.Field("allowHeaders").Index(i), h)
	}
	for i, h := range p.ExposeHeaders {
		c.HeaderName(at.Field("exposeHeaders").Index(i), h)
	}
	return out
}

func (c *routeConv) origins(at problem.Path, p *networking.CorsPolicy) []model.StringMatch {
	var out []model.StringMatch
	for i, o := range p.AllowOrigins {
		m := virtualServiceConv{c.Converter}.match(at.Field("allowOrigins").Index(i), o)
		if m.Value == "" {
			c.Errorf(code.NeverMatches, at.Field("allowOrigins").Index(i), "matches nothing; set one of exact, prefix and regex to a value")
		}
		out = append(out, m)
	}
	old := p.AllowOrigin //nolint:staticcheck // still in use
	if len(old) > 0 {
		c.Warnf(code.Deprecated, at.Field("allowOrigin"), "is deprecated; write allowOrigins: [{exact: %q}]", old[0])
	}
	for _, o := range old {
		if len(p.AllowOrigins) == 0 {
			out = append(out, model.StringMatch{Kind: model.MatchExact, Value: o})
		}
	}
	return out
}
