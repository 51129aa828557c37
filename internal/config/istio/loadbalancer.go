package istio

import (
	"maps"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/model"
)

// Sizes of hashing tables: Envoy's ring where the deprecated field is absent, and the
// largest Maglev table.
const (
	defaultRingSize = 1024
	maxMaglevTable  = 5000011
)

var algorithms = map[networking.LoadBalancerSettings_SimpleLB]model.LBAlgorithm{
	networking.LoadBalancerSettings_UNSPECIFIED:   "",
	networking.LoadBalancerSettings_LEAST_CONN:    model.LBLeastRequest, //nolint:staticcheck // still in use
	networking.LoadBalancerSettings_LEAST_REQUEST: model.LBLeastRequest,
	networking.LoadBalancerSettings_RANDOM:        model.LBRandom,
	networking.LoadBalancerSettings_PASSTHROUGH:   model.LBPassthrough,
	networking.LoadBalancerSettings_ROUND_ROBIN:   model.LBRoundRobin,
}

func (c destinationConv) loadBalancer(at problem.Path, lb *networking.LoadBalancerSettings, outlier bool) *model.LoadBalancer {
	if lb == nil {
		return nil
	}
	out := &model.LoadBalancer{Algorithm: algorithms[lb.GetSimple()]}
	if lb.GetSimple() == networking.LoadBalancerSettings_LEAST_CONN { //nolint:staticcheck // to report it
		c.Warnf(code.Deprecated, at.Field("simple"), "LEAST_CONN is deprecated; write LEAST_REQUEST")
	}
	if h := lb.GetConsistentHash(); h != nil {
		c.consistentHash(at.Field("consistentHash"), h, out)
	}
	out.Locality = c.localityLB(at.Field("localityLbSetting"), lb.LocalityLbSetting, outlier)
	if lb.ZoneAwareLbSetting != nil {
		c.Warnf(code.NotSupported, at.Field("zoneAwareLbSetting"), "has no effect: Envoy needs all endpoints of the caller's own service for it, which sidecars do not get; use localityLbSetting")
	}
	out.Warmup = c.warmup(at, lb)
	return out
}

func (c destinationConv) consistentHash(at problem.Path, h *networking.LoadBalancerSettings_ConsistentHashLB, out *model.LoadBalancer) {
	out.Algorithm, out.RingSize = model.LBRingHash, defaultRingSize
	out.Hash = c.hashKey(at, h)
	old := h.MinimumRingSize //nolint:staticcheck // still in use
	if old != 0 {
		out.RingSize = old
		c.Warnf(code.Deprecated, at.Field("minimumRingSize"), "is deprecated; write ringHash: {minimumRingSize: %d}", old)
		if h.HashAlgorithm != nil {
			c.Errorf(code.ExclusiveFields, at.Field("minimumRingSize"), "cannot be combined with ringHash or maglev; remove it")
		}
	}
	switch a := h.HashAlgorithm.(type) {
	case *networking.LoadBalancerSettings_ConsistentHashLB_RingHash_:
		out.RingSize = a.RingHash.GetMinimumRingSize()
	case *networking.LoadBalancerSettings_ConsistentHashLB_Maglev:
		out.Algorithm, out.RingSize = model.LBMaglev, 0
		out.TableSize = a.Maglev.GetTableSize()
		if size := out.TableSize; size >= maxMaglevTable || !isPrime(size) {
			c.Errorf(code.InvalidNumber, at.Field("maglev").Field("tableSize"), "%d cannot be used; use a prime number below %d, such as 65537", size, maxMaglevTable)
		}
	}
}

func (c destinationConv) hashKey(at problem.Path, h *networking.LoadBalancerSettings_ConsistentHashLB) *model.HashPolicy {
	out := &model.HashPolicy{}
	switch k := h.HashKey.(type) {
	case *networking.LoadBalancerSettings_ConsistentHashLB_HttpHeaderName:
		out.Header = k.HttpHeaderName
		c.HeaderName(at.Field("httpHeaderName"), k.HttpHeaderName)
	case *networking.LoadBalancerSettings_ConsistentHashLB_HttpQueryParameterName:
		out.QueryParam = k.HttpQueryParameterName
		if k.HttpQueryParameterName == "" {
			c.Errorf(code.EmptyValue, at.Field("httpQueryParameterName"), "is empty; name a query parameter")
		}
	case *networking.LoadBalancerSettings_ConsistentHashLB_UseSourceIp:
		out.SourceIP = k.UseSourceIp
		if !k.UseSourceIp {
			c.Errorf(code.EmptyValue, at.Field("useSourceIp"), "false hashes nothing; set it to true, or use another key")
		}
	case *networking.LoadBalancerSettings_ConsistentHashLB_HttpCookie:
		out.Cookie = c.hashCookie(at.Field("httpCookie"), k.HttpCookie)
	default:
		c.Errorf(code.MissingField, at, "has no key; set exactly one of httpHeaderName, httpCookie, useSourceIp and httpQueryParameterName")
	}
	return out
}

func (c destinationConv) hashCookie(at problem.Path, k *networking.LoadBalancerSettings_ConsistentHashLB_HTTPCookie) *model.HashCookie {
	out := &model.HashCookie{Name: k.GetName(), Path: k.GetPath()}
	if out.Name == "" {
		c.Errorf(code.MissingField, at.Field("name"), "is missing; name the cookie")
	}
	if k.GetTtl() != nil {
		ttl := k.Ttl.AsDuration() // 0 is a session cookie
		out.TTL = &ttl
		if ttl < 0 {
			c.Errorf(code.InvalidNumber, at.Field("ttl"), "%s is negative; use 0s for a session cookie", ttl)
		}
	}
	seen := map[string]bool{}
	for i, a := range k.GetAttributes() {
		c.PlainText(at.Field("attributes").Index(i).Field("value"), a.Value)
		field := at.Field("attributes").Index(i).Field("name")
		c.PlainText(field, a.Name)
		switch {
		case a.Name == "":
			c.Errorf(code.MissingField, field, "is missing; name the attribute")
		case seen[a.Name]:
			c.Errorf(code.ListedTwice, field, "%q is listed twice; remove one", a.Name)
		}
		seen[a.Name] = true
		out.Attributes = append(out.Attributes, model.HeaderValue{Name: a.Name, Value: a.Value})
	}
	return out
}

func isPrime(n uint64) bool {
	if n < 2 || n%2 == 0 {
		return n == 2
	}
	for f := uint64(3); f*f <= n; f += 2 {
		if n%f == 0 {
			return false
		}
	}
	return true
}

func (c destinationConv) warmup(at problem.Path, lb *networking.LoadBalancerSettings) *model.Warmup {
	if w := lb.Warmup; w != nil {
		at := at.Field("warmup")
		out := &model.Warmup{
			Duration:   c.Duration(at.Field("duration"), w.Duration),
			Aggression: w.Aggression.GetValue(),
		}
		if w.MinimumPercent != nil {
			percent := c.Percent(at.Field("minimumPercent"), w.MinimumPercent.GetValue())
			out.MinimumPercent = &percent
		}
		if w.Duration == nil {
			c.Errorf(code.MissingField, at.Field("duration"), "is missing; set a duration, such as 60s")
		}
		if w.Aggression != nil && out.Aggression <= 0 {
			c.Errorf(code.InvalidNumber, at.Field("aggression"), "%v cannot be used; use a number above 0", out.Aggression)
		}
		return out
	}
	if old := lb.WarmupDurationSecs; old != nil { //nolint:staticcheck // still in use
		c.Warnf(code.Deprecated, at.Field("warmupDurationSecs"), "is deprecated; write warmup: {duration: %s}", old.AsDuration())
		return &model.Warmup{Duration: c.Duration(at.Field("warmupDurationSecs"), old)}
	}
	return nil
}

func (c destinationConv) localityLB(at problem.Path, l *networking.LocalityLoadBalancerSetting, outlier bool) *model.LocalityLB {
	if l == nil {
		return nil
	}
	out := &model.LocalityLB{FailoverPriority: l.FailoverPriority}
	if l.Enabled != nil {
		v := l.Enabled.GetValue()
		out.Enabled = &v
	}
	if len(l.Distribute) > 0 && len(l.Failover) > 0 {
		c.Errorf(code.ExclusiveFields, at.Field("failover"), "cannot be combined with distribute; remove one of the two")
	}
	if (len(l.Failover) > 0 || len(l.FailoverPriority) > 0) && !outlier {
		c.Warnf(code.NoEffect, at, "failover needs outlierDetection to find out what has failed; add it to the same policy, unless the mesh's defaultTrafficPolicy has it")
	}
	var from []string
	for i, d := range l.Distribute {
		out.Distribute = append(out.Distribute, c.distribute(at.Field("distribute").Index(i), d))
		from = append(from, d.From)
	}
	c.localities(at.Field("distribute"), from)
	c.failovers(at, l, out)
	return out
}

func (c destinationConv) distribute(at problem.Path, d *networking.LocalityLoadBalancerSetting_Distribute) model.LocalityDistribute {
	total := uint64(0)
	for _, to := range slices.Sorted(maps.Keys(d.To)) {
		if w := d.To[to]; w < 1 || w > 100 {
			c.Errorf(code.InvalidNumber, at.Field("to").Key(to), "%d is not a weight; use 1 to 100, or leave the locality out", w)
		}
		total += uint64(d.To[to])
	}
	if total != 100 {
		c.Errorf(code.InvalidNumber, at.Field("to"), "the weights add up to %d; make them add up to 100", total)
	}
	c.localities(at.Field("to"), slices.Sorted(maps.Keys(d.To)))
	return model.LocalityDistribute{From: d.From, To: d.To}
}

// localities checks the form of localities, and that no two of them overlap.
func (c destinationConv) localities(at problem.Path, list []string) {
	for i, l := range list {
		if !validLocality(l) {
			c.Errorf(code.InvalidFormat, at, "%q is not a locality; write region, region/zone or region/zone/subzone, with \"*\" as the last part at most", l)
			continue
		}
		for _, other := range list[:i] {
			if covers(l, other) || covers(other, l) {
				c.Errorf(code.ListedTwice, at, "%q and %q overlap; keep one of them", other, l)
				break
			}
		}
	}
}

func validLocality(l string) bool {
	parts := strings.Split(l, "/")
	if len(parts) > 3 {
		return false
	}
	for i, p := range parts {
		if p == "" || strings.Contains(p, "*") && (p != "*" || i != len(parts)-1) {
			return false
		}
	}
	return true
}

// covers reports whether every place of b is one of a.
func covers(a, b string) bool {
	a = strings.TrimSuffix(strings.TrimSuffix(a, "*"), "/")
	b = strings.TrimSuffix(strings.TrimSuffix(b, "*"), "/")
	return a == "" || a == b || strings.HasPrefix(b, a+"/")
}

func (c destinationConv) failovers(at problem.Path, l *networking.LocalityLoadBalancerSetting, out *model.LocalityLB) {
	for i, f := range l.Failover {
		at := at.Field("failover").Index(i)
		switch {
		case strings.ContainsAny(f.From+f.To, "/*"):
			c.Errorf(code.InvalidFormat, at, "%q to %q: name regions only, without \"/\" and \"*\"", f.From, f.To)
		case f.From == f.To:
			c.Errorf(code.ExclusiveFields, at, "from and to are both %q; name two regions", f.From)
		}
		out.Failover = append(out.Failover, model.LocalityFailover{From: f.From, To: f.To})
	}
	for i, p := range l.FailoverPriority {
		if len(l.Failover) > 0 && (p == model.LabelRegion || p == model.LabelZone || p == model.LabelSubzone) {
			c.Errorf(code.ExclusiveFields, at.Field("failoverPriority").Index(i), "%s cannot be combined with failover; remove one of the two", p)
		}
	}
}
