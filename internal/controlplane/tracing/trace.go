// Package tracing makes each change of the mesh a trace for OpenTelemetry: its stages are spans, and so are
// the answers of the slowest and refusing proxies. It is off unless a destination is configured.
//
// It gets a change after its end. So tracing costs the pipeline a send to a bounded queue, and never waits
// for a collector.
package tracing

import (
	"context"
	"log/slog"
	"os"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/moonsail/moonsail/internal/pipeline/changelog"
	"github.com/moonsail/moonsail/internal/version"
)

// Meter counts the results of traces. *changelog.Metrics implements it.
type Meter interface {
	TraceDropped()
	Spans(n int, exported bool)
}

// Bounds.
const (
	maxQueued     = 256 // changes that wait for the exporter; further ones are dropped, and counted
	maxBatch      = 512 // spans from which on a request is sent; a change has at most 18
	exportTimeout = 10 * time.Second
	flushTimeout  = 3 * time.Second // time to flush at the end
)

// Exporter sends changes as traces. It is the change log's Tracer. All work is in Run's goroutine.
type Exporter struct {
	// Read-only.
	queue  chan changelog.Trace
	meter  Meter
	log    *slog.Logger
	out    sdk.SpanExporter
	tracer trace.Tracer
	spans  *collector

	failing bool // owned by Run: the last request failed
}

// New returns an exporter. Run must be called.
func New(ctx context.Context, c Config, meter Meter, log *slog.Logger) (*Exporter, error) {
	out, err := c.exporter(ctx)
	if err != nil {
		return nil, err
	}
	return newExporter(out, meter, log), nil
}

func newExporter(out sdk.SpanExporter, meter Meter, log *slog.Logger) *Exporter {
	// The SDK reports through a global handler what a collector took only in part.
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn("OpenTelemetry", "err", err) }))
	spans := &collector{}
	provider := sdk.NewTracerProvider(sdk.WithSpanProcessor(spans), sdk.WithResource(describe()))
	return &Exporter{
		queue: make(chan changelog.Trace, maxQueued), meter: meter, log: log, out: out,
		tracer: provider.Tracer("github.com/moonsail/moonsail", trace.WithInstrumentationVersion(version.Get().Version)), spans: spans,
	}
}

// describe identifies this process. OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES win.
func describe() *resource.Resource {
	host, _ := os.Hostname()
	ours := resource.NewSchemaless(attribute.String("service.name", "moonsail"),
		attribute.String("service.version", version.Get().Version), attribute.String("service.instance.id", host))
	all, err := resource.Merge(ours, resource.Environment())
	if err != nil {
		return ours
	}
	return all
}

// Trace implements changelog.Tracer. It never blocks.
func (e *Exporter) Trace(t changelog.Trace) {
	select {
	case e.queue <- t:
	default:
		e.meter.TraceDropped()
	}
}

// Run sends traces until ctx ends, and then flushes for flushTimeout. A request contains what came during
// the last one.
func (e *Exporter) Run(ctx context.Context) {
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(flushTimeout, cancel) })()
	for ctx.Err() == nil {
		select {
		case t := <-e.queue:
			e.send(work, t)
		case <-ctx.Done():
		}
	}
	e.flush(work)
}

// send exports a change, and with it waiting changes, up to a batch.
func (e *Exporter) send(ctx context.Context, t changelog.Trace) {
	e.recordSpans(&t)
	for len(e.spans.ended) < maxBatch {
		select {
		case t = <-e.queue:
			e.recordSpans(&t)
			continue
		default:
		}
		break
	}
	e.export(ctx)
}

// flush sends what is left until ctx ends, and closes the exporter.
func (e *Exporter) flush(ctx context.Context) {
	for len(e.queue) > 0 && ctx.Err() == nil {
		e.send(ctx, <-e.queue)
	}
	for range len(e.queue) {
		e.meter.TraceDropped()
	}
	_ = e.out.Shutdown(ctx) // it has nothing of ours
}

// export sends the spans that have ended. What the collector rejects is lost.
func (e *Exporter) export(ctx context.Context) {
	spans := e.spans.take()
	if len(spans) == 0 {
		return // none was sampled
	}
	ctx, cancel := context.WithTimeout(ctx, exportTimeout)
	defer cancel()
	err := e.out.ExportSpans(ctx, spans)
	e.meter.Spans(len(spans), err == nil)
	switch {
	case err != nil && !e.failing:
		e.log.Warn("traces are lost: the collector rejects them", "err", err)
	case err == nil && e.failing:
		e.log.Info("the collector accepts traces again")
	}
	e.failing = err != nil
}

// collector is the SDK's span processor: it keeps ended spans until they are taken. One goroutine makes
// spans and takes them.
type collector struct{ ended []sdk.ReadOnlySpan }

func (c *collector) take() []sdk.ReadOnlySpan {
	spans := c.ended
	c.ended = nil
	return spans
}

// OnStart implements sdk.SpanProcessor.
func (c *collector) OnStart(context.Context, sdk.ReadWriteSpan) {}

// OnEnd implements sdk.SpanProcessor.
func (c *collector) OnEnd(s sdk.ReadOnlySpan) {
	if s.SpanContext().IsSampled() {
		c.ended = append(c.ended, s)
	}
}

// Shutdown implements sdk.SpanProcessor.
func (c *collector) Shutdown(context.Context) error { return nil }

// ForceFlush implements sdk.SpanProcessor.
func (c *collector) ForceFlush(context.Context) error { return nil }
