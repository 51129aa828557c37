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

// The protocols of OTLP, with their names in OTEL_EXPORTER_OTLP_PROTOCOL.
const (
	protocolGRPC = "grpc"
	protocolHTTP = "http/protobuf"
)

// Config is the destination of traces. The zero value is none.
type Config struct {
	protocol string
	endpoint string // a URL; empty: the exporter reads it from the environment
}

// On reports whether traces are sent.
func (c Config) On() bool { return c.protocol != "" }

// String describes the destination.
func (c Config) String() string {
	return cmp.Or(c.endpoint, "as set by OTEL_EXPORTER_OTLP_*") + " (" + c.protocol + ")"
}

// Read finds the destination: endpoint, which is --otlp-endpoint, or OpenTelemetry's variables. Headers,
// certificates, timeouts, compression, sampling and resource attributes always come from the variables.
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
		return Config{}, fmt.Errorf("OTEL_TRACES_EXPORTER=%s: unknown: use otlp or none", kind)
	}
	if endpoint == "" && env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT") == "" {
		return Config{}, nil
	}
	protocol := cmp.Or(env("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"), protocolHTTP)
	if protocol != protocolGRPC && protocol != protocolHTTP {
		return Config{}, fmt.Errorf("OTEL_EXPORTER_OTLP_PROTOCOL=%s: unknown: use %s or %s", protocol, protocolGRPC, protocolHTTP)
	}
	if endpoint == "" {
		return Config{protocol: protocol}, nil
	}
	return parse(endpoint, protocol)
}

// parse reads an endpoint. grpc and grpcs are http and https with the other protocol.
func parse(endpoint, protocol string) (Config, error) {
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" {
		return Config{}, fmt.Errorf("--otlp-endpoint %q: not a URL: use http://HOST:4318 or grpc://HOST:4317, with https or grpcs for TLS", endpoint)
	}
	switch u.Scheme {
	case "grpc", "grpcs":
		protocol, u.Scheme = protocolGRPC, "http"+strings.TrimPrefix(u.Scheme, "grpc")
	case "http", "https":
	default:
		return Config{}, fmt.Errorf("--otlp-endpoint %q: unknown scheme: use http, https, grpc or grpcs", endpoint)
	}
	if protocol == protocolHTTP && strings.Trim(u.Path, "/") == "" {
		u.Path = "/v1/traces"
	}
	return Config{protocol: protocol, endpoint: u.String()}, nil
}

// exporter makes the exporter of spans. It connects when there is something to send.
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
