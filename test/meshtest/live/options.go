package live

import (
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/types/known/anypb"

	// Messages that an Any in a configuration may contain.
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/file/v3"
)

const httpOptions = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"

// withoutAutoSNI removes options that require TLS, which echo servers do not support.
func withoutAutoSNI(packed *anypb.Any) *anypb.Any {
	o := &httpv3.HttpProtocolOptions{}
	if packed.UnmarshalTo(o) != nil {
		return packed
	}
	o.UpstreamHttpProtocolOptions = nil
	if o.GetUpstreamProtocolOptions() == nil {
		o.UpstreamProtocolOptions = &httpv3.HttpProtocolOptions_ExplicitHttpConfig_{
			ExplicitHttpConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig{
				ProtocolConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_HttpProtocolOptions{},
			},
		}
	}
	out, err := anypb.New(o)
	if err != nil {
		return packed
	}
	return out
}
