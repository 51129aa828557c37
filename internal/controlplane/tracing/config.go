package tracing

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"strings"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdk "go.opentelemetry.io/otel/sdk/trace"
)

// The protocols of OTLP, as OTEL_EXPORTER_OTLP_PROTOCOL names them.
const (
	protocolGRPC = "grpc"
	protocolHTTP = "http/protobuf"
)

// Config is where traces go. The zero value is nowhere.
type Config struct {
	protocol string
	endpoint string // an URL; empty: the exporter reads it, like all else, from the environment
}

// On tells whether traces go anywhere.
func (c Config) On() bool { return c.protocol != "" }

// String is where traces go, for people.
func (c Config) String() string {
	return cmp.Or(c.endpoint, "as OTEL_EXPORTER_OTLP_* say") + " (" + c.protocol + ")"
}

// Read finds where traces go: to endpoint, which is --otlp-endpoint, or to where OpenTelemetry's
// variables say. Headers, certificates, timeouts, compression, sampling and attributes of the
// resource are read from the variables in either case.
func Read(endpoint string, lookup func(string) (string, bool)) (Config, error) {
	env := func(names ...string) string {
		for _, n := range names {
			if v, ok := lookup(n); ok && v != "" {
				return v
			}
		}
		return ""
	}
	if strings.EqualFold(env("OTEL_SDK_DISABLED"), "true") {
		return Config{}, nil
	}
	switch kind := env("OTEL_TRACES_EXPORTER"); {
	case kind == "none":
		return Config{}, nil
	case kind != "" && kind != "otlp":
		return Config{}, fmt.Errorf("OTEL_TRACES_EXPORTER=%s: only otlp and none are known", kind)
	}
	if endpoint == "" && env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT") == "" {
		return Config{}, nil
	}
	protocol := cmp.Or(env("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"), protocolHTTP)
	if protocol != protocolGRPC && protocol != protocolHTTP {
		return Config{}, fmt.Errorf("OTEL_EXPORTER_OTLP_PROTOCOL=%s: it is %s or %s", protocol, protocolGRPC, protocolHTTP)
	}
	if endpoint == "" {
		return Config{protocol: protocol}, nil
	}
	return parse(endpoint, protocol)
}

// parse reads an endpoint: grpc and grpcs are http and https with the other protocol.
func parse(endpoint, protocol string) (Config, error) {
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" {
		return Config{}, fmt.Errorf("--otlp-endpoint %q is not an URL: the form is http://HOST:4318 or grpc://HOST:4317, with https or grpcs for TLS", endpoint)
	}
	switch u.Scheme {
	case "grpc", "grpcs":
		protocol, u.Scheme = protocolGRPC, "http"+strings.TrimPrefix(u.Scheme, "grpc")
	case "http", "https":
	default:
		return Config{}, fmt.Errorf("--otlp-endpoint %q: the scheme is http, https, grpc or grpcs", endpoint)
	}
	if protocol == protocolHTTP && strings.Trim(u.Path, "/") == "" {
		u.Path = "/v1/traces"
	}
	return Config{protocol: protocol, endpoint: u.String()}, nil
}

// exporter makes what sends spans. It connects when there is something to send.
func (c Config) exporter(ctx context.Context) (sdk.SpanExporter, error) {
	if c.protocol == protocolGRPC {
		var opts []otlptracegrpc.Option
		if c.endpoint != "" {
			opts = append(opts, otlptracegrpc.WithEndpointURL(c.endpoint))
		}
		return otlptracegrpc.New(ctx, opts...)
	}
	var opts []otlptracehttp.Option
	if c.endpoint != "" {
		opts = append(opts, otlptracehttp.WithEndpointURL(c.endpoint))
	}
	return otlptracehttp.New(ctx, opts...)
}
