// Package outcome describes what becomes of a simulated call: a text for each property that a user may care about. Packages
// preview and compare share it.
package outcome

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"

	"github.com/moonsail/moonsail/internal/diagnose/simulate"
	"github.com/moonsail/moonsail/internal/xds/resourcename"
)

// Outcome is what becomes of a call: texts by property, in the order of properties.
type Outcome map[string]string

// Properties are in the order in which users read them.
var Properties = []string{
	"answer", "server", "destination", "encryption", "endpoints", "timeout", "retries", "fault", "mirror", "path", "host", "request headers",
	"response headers", "CORS", "protocol", "load balancing", "connection limits", "outlier detection", "connect timeout",
	"server identity", "SNI", "certificate authority", "certificate", "hash", "tunnel",
}

// Answer is what a proxy does with a call: forwards it, answers itself, or closes the connection. Dry-run policies only count calls.
func Answer(r *simulate.Result) string {
	text := "accepts"
	switch {
	case r.Closed != "":
		text = "closes the connection: " + r.Closed
	case r.Status != 0:
		text = "answers " + r.StatusText()
		if r.Location != "" {
			text += " to " + r.Location
		}
	case r.Listener == "":
		text = "does not listen there"
	}
	for _, d := range r.Decisions {
		if d.Refuses && !d.DryRun {
			text += ", " + decision(&d)
		}
	}
	return text
}

func decision(d *simulate.Decision) string {
	switch {
	case d.Policy != "":
		return fmt.Sprintf("because of AuthorizationPolicy/%s%s", d.Policy, d.RuleText())
	case len(d.Among) > 0:
		return "because no rule of " + strings.Join(d.Among, ", ") + " allows it"
	case d.Cause != "":
		return d.Cause
	}
	return "because of a policy with action " + d.Action
}

// Set sets a property, unless the text is empty.
func (o Outcome) Set(property, text string) {
	if text != "" {
		o[property] = text
	}
}

// None is the text for a property that an outcome does not have, beside one that has it.
const None = "none"

// Compare calls differ for each of properties that o and other do not share. If one of them does not forward the call, the
// properties after the answer have no counterpart there, and are left out.
func (o Outcome) Compare(other Outcome, properties []string, differ func(property, here, there string)) {
	for _, p := range properties {
		if o[p] == other[p] {
			continue
		}
		differ(p, cmp.Or(o[p], None), cmp.Or(other[p], None))
		if p == "answer" && (o[p] != Forwarded || other[p] != Forwarded) {
			return
		}
	}
}

// Forwarded is the answer of a proxy that passes a call on.
const Forwarded = "forwarded"

// Describe adds what the caller's proxy does with a call.
func (o Outcome) Describe(call *simulate.Call, r *simulate.Result) {
	text := Answer(r)
	if text == "accepts" {
		text = Forwarded
	}
	if f := r.Fault; f != nil && r.Status != 0 {
		text += ": a fault of " + fault(f)
	}
	o.Set("answer", text)
	if r.Timeout != "none" {
		o.Set("timeout", r.Timeout)
	}
	if r.Retry != nil {
		o.Set("retries", retries(r.Retry))
	}
	o.Set("fault", fault(r.Fault))
	var mirrors []string
	for _, m := range r.Mirrors {
		mirrors = append(mirrors, fmt.Sprintf("%g%% to %s", m.Percent, clusterText(m.Cluster, "")))
	}
	o.Set("mirror", strings.Join(mirrors, ", "))
	if r.Path != call.Path {
		o.Set("path", r.Path)
	}
	if r.Authority != call.Host {
		o.Set("host", r.Authority)
	}
	if r.RequestHeaders != nil { // all upstreams get the same
		more, removed := headerChanges(r.RequestHeaders, call.Headers)
		o.Set("request headers", headers(more, removed))
	}
	o.Set("response headers", headers(r.ResponseHeaders, r.ResponseRemoved))
	if r.CORS != nil {
		o.Set("CORS", fmt.Sprintf("allowed: %t", r.CORS.Allowed))
	}
}

// Upstreams adds where a call to a host goes, and how. nameAt returns the name of an endpoint.
func (o Outcome) Upstreams(r *simulate.Result, host string, nameAt func(address string) string) {
	shares, endpoints := map[string]float64{}, map[string]float64{}
	each := texts{}
	for i := range r.Upstreams {
		u := &r.Upstreams[i]
		reached := false
		for _, e := range u.Endpoints {
			if e.Percent > 0 {
				reached = true
				endpoints[nameAt(e.Address)] += e.Percent * u.Percent / 100
			}
			each.add("encryption", encryption(u, &e))
		}
		name := clusterText(u.Cluster, host)
		if !reached {
			name += " (no endpoints)"
		}
		shares[name] += u.Percent
		if u.Discovery == clusterv3.Cluster_STATIC.String() && len(u.Endpoints) == 0 {
			continue // it refuses all calls
		}
		each.add("protocol", u.Protocol)
		each.add("load balancing", u.LB)
		each.add("connect timeout", u.Connect)
		if u.Limits != nil {
			each.add("connection limits", strings.Trim(fmt.Sprintf("%+v", *u.Limits), "{}"))
		}
		if u.Outlier != nil {
			each.add("outlier detection", outlier(u.Outlier))
		}
	}
	o.secured(r)
	o.Set("destination", Shares(shares))
	o.Set("endpoints", Shares(endpoints))
	o.setAll(each, ", ")
}

// texts are the different texts of properties.
type texts map[string][]string

func (t texts) add(property, text string) {
	if text != "" && !slices.Contains(t[property], text) {
		t[property] = append(t[property], text)
	}
}

// setAll sets each property to its texts.
func (o Outcome) setAll(t texts, separator string) {
	for property, all := range t {
		slices.Sort(all)
		o.Set(property, strings.Join(all, separator))
	}
}

// secured adds whom the proxy accepts as the server of a call, the hash that chooses endpoints, and the tunnel.
func (o Outcome) secured(r *simulate.Result) {
	each := texts{}
	for i := range r.Upstreams {
		t := r.Upstreams[i].TLS
		if t == nil || !slices.ContainsFunc(r.Upstreams[i].Endpoints, func(e simulate.Endpoint) bool { return e.Percent > 0 && !e.Plain }) {
			continue
		}
		each.add("server identity", strings.Join(t.SANs, ", "))
		each.add("SNI", t.SNI)
		each.add("certificate authority", t.CA)
		each.add("certificate", t.Cert)
	}
	o.setAll(each, "; ")
	o.Set("hash", strings.Join(r.Hash, ", "))
	o.Set("tunnel", r.Tunnel)
}

func encryption(u *simulate.Upstream, e *simulate.Endpoint) string {
	switch {
	case u.TLS == nil || e.Plain:
		return "plain text"
	case u.TLS.Cert != "":
		return "mutual TLS"
	}
	return "TLS"
}

// clusterText is "reviews.shop.svc.cluster.local:9080", or "v1 of" it for a subset. If that is the host of the call, a subset
// is its name alone.
func clusterText(name, host string) string {
	c, ok := resourcename.ParseCluster(name)
	if !ok {
		return name
	}
	text := fmt.Sprintf("%s:%d", c.Host, c.Port)
	switch {
	case c.Subset != "" && text == host:
		return c.Subset
	case c.Subset != "":
		return c.Subset + " of " + text
	}
	return text
}

// Shares is "a 90%, b 10%", or "a" if that gets all.
func Shares(shares map[string]float64) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(shares)) {
		if share := fmt.Sprintf("%.4g%%", shares[name]); share != "100%" {
			name += " " + share
		}
		out = append(out, name)
	}
	return strings.Join(out, ", ")
}

func fault(f *simulate.Fault) string {
	if f == nil {
		return ""
	}
	var out []string
	if f.Delay != "" {
		out = append(out, fmt.Sprintf("%g%% delayed by %s", f.DelayPercent, f.Delay))
	}
	if f.Abort != 0 {
		out = append(out, fmt.Sprintf("%g%% answered with %d", f.AbortPercent, f.Abort))
	}
	if f.AbortGRPC != nil {
		out = append(out, fmt.Sprintf("%g%% answered with gRPC status %d", f.AbortPercent, *f.AbortGRPC))
	}
	return strings.Join(out, ", ")
}

func retries(r *simulate.Retry) string {
	out := []string{fmt.Sprintf("%d on %s", r.Attempts, r.On)}
	if len(r.Codes) > 0 {
		out = append(out, strings.Trim(fmt.Sprint(r.Codes), "[]"))
	}
	out = append(out, prefixed("each at most ", r.PerTry), prefixed("back-off ", r.Backoff))
	if r.PreviousHosts {
		out = append(out, "at other endpoints")
	}
	if r.OtherLocalities {
		out = append(out, "in any locality")
	}
	return strings.Join(slices.DeleteFunc(out, func(s string) bool { return s == "" }), " ")
}

// headerChanges returns the headers that a proxy adds to those of a call, or changes, and the names of those that it removes.
func headerChanges(all, own map[string]string) (more map[string]string, removed []string) {
	more = maps.Clone(all)
	for k, v := range own {
		k = strings.ToLower(k)
		switch value, kept := all[k]; {
		case !kept && k != "host":
			removed = append(removed, k)
		case value == v:
			delete(more, k)
		}
	}
	slices.Sort(removed)
	return more, removed
}

func headers(set map[string]string, removed []string) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(set)) {
		out = append(out, k+": "+set[k])
	}
	for _, k := range removed {
		out = append(out, "without "+k)
	}
	return strings.Join(out, ", ")
}

func outlier(o *simulate.Outlier) string {
	var out []string
	if o.Consecutive5xx != nil {
		out = append(out, fmt.Sprintf("%d consecutive 5xx", *o.Consecutive5xx))
	}
	if o.ConsecutiveGateway != nil {
		out = append(out, fmt.Sprintf("%d consecutive gateway errors", *o.ConsecutiveGateway))
	}
	if o.MaxPercent != nil {
		out = append(out, fmt.Sprintf("at most %d%%", *o.MaxPercent))
	}
	out = append(out, prefixed("interval ", o.Interval), prefixed("ejection ", o.Ejection))
	return strings.Join(slices.DeleteFunc(out, func(s string) bool { return s == "" }), ", ")
}

func prefixed(prefix, text string) string {
	if text == "" {
		return ""
	}
	return prefix + text
}
