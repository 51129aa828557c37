package compare

import (
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/diagnose/outcome"
	"github.com/moonsail/moonsail/internal/diagnose/simulate"
)

// properties are what is compared, in the order in which users read it: those of package outcome, and more about security.
var properties = slices.Concat(outcome.Properties, []string{"server identity", "SNI", "certificate authority", "certificate", "hash", "tunnel", "tokens", "access log", "tracing"})

// secured adds whom the proxy accepts as the server of a call, and how endpoints are chosen by hash.
func (f *followed) secured(r *simulate.Result) {
	each := map[string][]string{}
	for i := range r.Upstreams {
		t := r.Upstreams[i].TLS
		if t == nil || !slices.ContainsFunc(r.Upstreams[i].Endpoints, func(e simulate.Endpoint) bool { return e.Percent > 0 && !e.Plain }) {
			continue
		}
		for property, text := range map[string]string{
			"server identity": strings.Join(t.SANs, ", "), "SNI": t.SNI, "certificate authority": t.CA, "certificate": t.Cert,
		} {
			if text != "" && !slices.Contains(each[property], text) {
				each[property] = append(each[property], text)
			}
		}
	}
	for property, texts := range each {
		slices.Sort(texts)
		f.Set(property, strings.Join(texts, "; "))
	}
	f.Set("hash", strings.Join(r.Hash, ", "))
	f.Set("tunnel", r.Tunnel)
}
