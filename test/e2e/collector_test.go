package e2e

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	datalogv3 "github.com/envoyproxy/go-control-plane/envoy/data/accesslog/v3"
	accesslogservicev3 "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"
	collectorv1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
)

// collector receives spans of sidecars over OTLP, and access logs over Envoy's service.
type collector struct {
	collectorv1.UnimplementedTraceServiceServer
	accesslogservicev3.UnimplementedAccessLogServiceServer
	app

	mu    sync.Mutex // guards the fields below
	spans []sentSpan
	http  []*datalogv3.HTTPAccessLogEntry
	tcp   []*datalogv3.TCPAccessLogEntry
}

// sentSpan is a span and the service that it names.
type sentSpan struct {
	*tracev1.Span
	service string
}

// startCollector serves until the test ends.
func startCollector(t *testing.T) *collector {
	t.Helper()
	c := &collector{app: app{name: "collector", ip: ownIP()}}
	ln := c.listen(t)
	s := grpc.NewServer()
	collectorv1.RegisterTraceServiceServer(s, c)
	accesslogservicev3.RegisterAccessLogServiceServer(s, c)
	var serving sync.WaitGroup
	serving.Go(func() { _ = s.Serve(ln) })
	t.Cleanup(func() {
		s.Stop()
		serving.Wait()
	})
	return c
}

// document is the collector as a service outside of the mesh.
func (c *collector) document() string {
	return fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: collector, namespace: shop}
spec:
  hosts: [collector.example.com]
  resolution: STATIC
  ports: [{number: 4317, name: grpc, protocol: GRPC, targetPort: %d}]
  endpoints: [{address: %s}]`, c.port, c.ip)
}

// Export implements OTLP over gRPC.
func (c *collector) Export(_ context.Context, q *collectorv1.ExportTraceServiceRequest) (*collectorv1.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, of := range q.ResourceSpans {
		service := ""
		for _, a := range of.Resource.Attributes {
			if a.Key == "service.name" {
				service = a.Value.GetStringValue()
			}
		}
		for _, by := range of.ScopeSpans {
			for _, s := range by.Spans {
				c.spans = append(c.spans, sentSpan{s, service})
			}
		}
	}
	return &collectorv1.ExportTraceServiceResponse{}, nil
}

// StreamAccessLogs implements Envoy's access log service.
func (c *collector) StreamAccessLogs(stream accesslogservicev3.AccessLogService_StreamAccessLogsServer) error {
	for {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		c.mu.Lock()
		c.http = append(c.http, m.GetHttpLogs().GetLogEntry()...)
		c.tcp = append(c.tcp, m.GetTcpLogs().GetLogEntry()...)
		c.mu.Unlock()
	}
}

// span returns the span of a trace that a service sent, or nil.
func (c *collector) span(trace []byte, service string) *tracev1.Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.spans {
		if slices.Equal(s.TraceId, trace) && s.service == service {
			return s.Span
		}
	}
	return nil
}

// logged returns the entries of requests, and of connections.
func (c *collector) logged() (http []*datalogv3.HTTPAccessLogEntry, tcp []*datalogv3.TCPAccessLogEntry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.http), slices.Clone(c.tcp)
}
