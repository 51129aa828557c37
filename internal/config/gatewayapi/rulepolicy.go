package gatewayapi

import (
	"regexp"
	"strconv"
	"strings"
	"time"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/model"
)

// Retries of the Gateway API if the rule does not set them: what is retried always, and how often. It is what Istio retries.
// The Gateway API also requires retries of connections that are reset or give no answer in time.
const (
	defaultRetryOn       = "connect-failure,refused-stream,unavailable,cancelled,reset"
	defaultRetryAttempts = 2
)

// rulePolicy takes timeouts and retries of a rule. The time that a backend has is that of each try; without tries
// it is the request's, as in Istio.
func (c *conv) rulePolicy(at problem.Path, r *gatewayv1.HTTPRouteRule, out *model.HTTPRoute) {
	var request, try *time.Duration
	if t := r.Timeouts; t != nil {
		request = c.ruleDuration(at.Field("timeouts").Field("request"), t.Request)
		try = c.ruleDuration(at.Field("timeouts").Field("backendRequest"), t.BackendRequest)
	}
	out.Timeout, out.Retry = request, c.retry(at.Field("retry"), r.Retry)
	switch {
	case try == nil || *try == 0:
	case out.Retry != nil:
		out.Retry.PerTryTimeout = *try
	default:
		out.Timeout = try
	}
	if r.SessionPersistence != nil {
		c.Warnf(code.NotSupported, at.Field("sessionPersistence"), "has no effect in Moonsail yet")
	}
}

// ruleDuration returns nil if the field is missing. 0 means no limit.
func (c *conv) ruleDuration(at problem.Path, text *gatewayv1.Duration) *time.Duration {
	if text == nil {
		return nil
	}
	d, err := time.ParseDuration(string(*text))
	if err != nil || d < 0 {
		c.Errorf(code.InvalidDuration, at, "%q is not a duration; write one such as 10s", *text)
		return nil
	}
	return &d
}

func (c *conv) retry(at problem.Path, r *gatewayv1.HTTPRouteRetry) *model.Retry {
	if r == nil {
		return nil
	}
	out := &model.Retry{Attempts: defaultRetryAttempts, RetryOn: defaultRetryOn}
	if r.Attempts != nil {
		out.Attempts = c.Count(at.Field("attempts"), int32(min(*r.Attempts, 1<<31-1)))
	}
	for _, code := range r.Codes {
		out.RetryOn += "," + strconv.Itoa(int(code))
	}
	if d := c.ruleDuration(at.Field("backoff"), r.Backoff); d != nil {
		out.Backoff = *d
	}
	return out
}

// corsFilter converts a CORS filter. Envoy, not the application, answers the pages of other origins.
func (c *conv) corsFilter(at problem.Path, f *gatewayv1.HTTPCORSFilter) *model.CORS {
	no := false
	out := &model.CORS{AllowCredentials: f.AllowCredentials, ForwardUnmatched: &no}
	for i, o := range f.AllowOrigins {
		if o == "" {
			c.Errorf(code.EmptyValue, at.Field("allowOrigins").Index(i), "is empty; name an origin, or \"*\" for all")
			continue
		}
		match := originMatch(string(o))
		if match.Kind == model.MatchRegex {
			c.RegexProgram(at.Field("allowOrigins").Index(i), match.Value)
		}
		out.AllowOrigins = append(out.AllowOrigins, match)
	}
	for _, m := range f.AllowMethods {
		out.AllowMethods = append(out.AllowMethods, string(m))
	}
	for _, h := range f.AllowHeaders {
		out.AllowHeaders = append(out.AllowHeaders, string(h))
	}
	for _, h := range f.ExposeHeaders {
		out.ExposeHeaders = append(out.ExposeHeaders, string(h))
	}
	if f.MaxAge > 0 {
		age := time.Duration(f.MaxAge) * time.Second
		out.MaxAge = &age
	}
	return out
}

// originMatch: "*" within an origin stands for any part of a host, and never for what follows it.
func originMatch(origin string) model.StringMatch {
	if !strings.Contains(origin, "*") {
		return model.StringMatch{Kind: model.MatchExact, Value: origin}
	}
	if origin == "*" {
		return model.StringMatch{Kind: model.MatchRegex, Value: `[a-zA-Z][a-zA-Z0-9+.-]*://[^/?#\s]+`}
	}
	return model.StringMatch{Kind: model.MatchRegex, Value: strings.ReplaceAll(regexp.QuoteMeta(origin), `\*`, `[^/?#\s]*`)}
}
