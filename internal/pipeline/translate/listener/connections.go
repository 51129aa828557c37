package listener

import (
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

var underscoresActions = map[model.UnderscoresAction]corev3.HttpProtocolOptions_HeadersWithUnderscoresAction{
	model.UnderscoresAllow:  corev3.HttpProtocolOptions_ALLOW,
	model.UnderscoresReject: corev3.HttpProtocolOptions_REJECT_REQUEST,
	model.UnderscoresDrop:   corev3.HttpProtocolOptions_DROP_HEADER,
}

var escapedSlashesActions = map[model.EscapedSlashesAction]hcmv3.HttpConnectionManager_PathWithEscapedSlashesAction{
	model.EscapedSlashesKeep:     hcmv3.HttpConnectionManager_KEEP_UNCHANGED,
	model.EscapedSlashesReject:   hcmv3.HttpConnectionManager_REJECT_REQUEST,
	model.EscapedSlashesRedirect: hcmv3.HttpConnectionManager_UNESCAPE_AND_REDIRECT,
	model.EscapedSlashesForward:  hcmv3.HttpConnectionManager_UNESCAPE_AND_FORWARD,
}

// setConnections applies the connectionSettings of ProxyConfig. They take precedence over the mesh's normalization of paths.
func setConnections(s *model.ConnectionSettings, out *hcmv3.HttpConnectionManager) {
	if s == nil {
		return
	}
	if s.IdleTimeout != nil || s.MaxDuration != nil || s.MaxStreamDuration != nil || s.Underscores != "" {
		setCommonConnections(s, out)
	}
	setDuration(&out.StreamIdleTimeout, s.StreamIdleTimeout)
	setDuration(&out.RequestTimeout, s.RequestTimeout)
	setDuration(&out.RequestHeadersTimeout, s.HeadersTimeout)
	setDuration(&out.DrainTimeout, s.DrainTimeout)
	if s.MaxConcurrentStreams != nil || s.InitialStreamWindowSize != nil || s.InitialConnectionWindow != nil {
		if out.Http2ProtocolOptions == nil {
			out.Http2ProtocolOptions = &corev3.Http2ProtocolOptions{}
		}
		setNumber(&out.Http2ProtocolOptions.MaxConcurrentStreams, s.MaxConcurrentStreams)
		setNumber(&out.Http2ProtocolOptions.InitialStreamWindowSize, s.InitialStreamWindowSize)
		setNumber(&out.Http2ProtocolOptions.InitialConnectionWindowSize, s.InitialConnectionWindow)
	}
	if s.MergeSlashes != nil {
		out.MergeSlashes = *s.MergeSlashes
	}
	if s.EscapedSlashes != "" {
		out.PathWithEscapedSlashesAction = escapedSlashesActions[s.EscapedSlashes]
	}
}

// flushTimeout is Envoy's default.
var flushTimeout = durationpb.New(5 * time.Minute)

// setFlushTimeout bounds how long a client of a gateway may leave the end of a response in the gateway's memory
// (CVE-2020-12604). Up to 16 MiB of each HTTP/2 stream stay there until the client opens the stream's window. A configured
// stream idle timeout has precedence. Clients of sidecars belong to the mesh, and may be slow.
func setFlushTimeout(v *ir.HTTPChain, out *hcmv3.HttpConnectionManager) {
	if v.Gateway && (v.Connections == nil || v.Connections.StreamIdleTimeout == nil) {
		out.StreamFlushTimeout = flushTimeout
	}
}

func setCommonConnections(s *model.ConnectionSettings, out *hcmv3.HttpConnectionManager) {
	if out.CommonHttpProtocolOptions == nil {
		out.CommonHttpProtocolOptions = &corev3.HttpProtocolOptions{}
	}
	o := out.CommonHttpProtocolOptions
	setDuration(&o.IdleTimeout, s.IdleTimeout)
	setDuration(&o.MaxConnectionDuration, s.MaxDuration)
	setDuration(&o.MaxStreamDuration, s.MaxStreamDuration)
	if s.Underscores != "" {
		o.HeadersWithUnderscoresAction = underscoresActions[s.Underscores]
	}
}

func setDuration(to **durationpb.Duration, d *time.Duration) {
	if d != nil {
		*to = durationpb.New(*d)
	}
}

func setNumber(to **wrapperspb.UInt32Value, n *uint32) {
	if n != nil {
		*to = wrapperspb.UInt32(*n)
	}
}
