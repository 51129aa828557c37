package compare

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	fileaccesslogv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/file/v3"
	statsaccesslogv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/stats/v3"
	streamaccesslogv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/stream/v3"
	jwtv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/jwt_authn/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"google.golang.org/protobuf/types/known/anypb"
)

// chain adds what the filters of the connection's chain say beside the call: which tokens are accepted, and whether calls are
// logged and traced.
func (f *followed) chain(filters []*listenerv3.Filter) {
	if hcm := hcmOf(&listenerv3.FilterChain{Filters: filters}); hcm != nil {
		f.Set("access log", logs(hcm.GetAccessLog()))
		f.Set("tokens", tokens(hcm))
		if t := hcm.GetTracing(); t.GetProvider() != nil {
			sampled := 100.0
			if s := t.GetRandomSampling(); s != nil {
				sampled = s.GetValue()
			}
			f.Set("tracing", fmt.Sprintf("%g%%", sampled))
		}
		return
	}
	for _, one := range filters {
		tcp := &tcpv3.TcpProxy{}
		if one.GetTypedConfig().MessageIs(tcp) && one.GetTypedConfig().UnmarshalTo(tcp) == nil {
			f.Set("access log", logs(tcp.GetAccessLog()))
		}
	}
}

// logs names the access logs, without their formats.
func logs(all []*accesslogv3.AccessLog) string {
	var out []string
	for _, l := range all {
		if !l.GetTypedConfig().MessageIs(&statsaccesslogv3.Config{}) { // it only counts
			add(&out, logName(l.GetTypedConfig()))
		}
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

func logName(packed *anypb.Any) string {
	file := &fileaccesslogv3.FileAccessLog{}
	switch {
	case packed.MessageIs(file) && packed.UnmarshalTo(file) == nil:
		return file.GetPath()
	case packed.MessageIs(&streamaccesslogv3.StdoutAccessLog{}):
		return "/dev/stdout"
	}
	url := packed.GetTypeUrl()
	return url[strings.LastIndexByte(url, '.')+1:]
}

// tokens lists the accepted issuers with their audiences.
func tokens(hcm *hcmv3.HttpConnectionManager) string {
	var out []string
	for _, f := range hcm.GetHttpFilters() {
		jwt := &jwtv3.JwtAuthentication{}
		if !f.GetTypedConfig().MessageIs(jwt) || f.GetTypedConfig().UnmarshalTo(jwt) != nil {
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(jwt.GetProviders())) {
			p := jwt.GetProviders()[name]
			text := "issuer " + p.GetIssuer()
			if len(p.GetAudiences()) > 0 {
				text += " for " + strings.Join(slices.Sorted(slices.Values(p.GetAudiences())), ", ")
			}
			for _, h := range p.GetFromHeaders() {
				text += " in header " + h.GetName()
			}
			for _, q := range p.GetFromParams() {
				text += " in parameter " + q
			}
			add(&out, text)
		}
	}
	slices.Sort(out)
	return strings.Join(out, "; ")
}
