package tracing

import (
	"context"
	"fmt"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/moonsail/moonsail/internal/pipeline/changelog"
	"github.com/moonsail/moonsail/internal/xds/distribution"
)

// recordSpans turns a change into a trace.
//
// The root is the change, from its first event to the last answer. Its children are the stages: each begins
// where the one before ends, so that their sum is the root. Below the stage "ack" are proxies, from the
// first response on.
func (e *Exporter) recordSpans(t *changelog.Trace) {
	stages, total := t.Timeline.Split(time.Nanosecond)
	ctx, root := e.tracer.Start(context.Background(), "change "+t.Summary(1), trace.WithNewRoot(),
		trace.WithTimestamp(t.Observed), trace.WithAttributes(attributesOf(&t.Change)...))
	at := t.Observed
	for i, took := range stages {
		stage := changelog.Stage(i)
		if t.Timeline[i] < 0 {
			continue // the stage never ended, for example because nothing was sent
		}
		c, s := e.tracer.Start(ctx, stage.String(), trace.WithTimestamp(at))
		if stage == changelog.StageAck {
			e.recordAnswers(c, at, t.Answers)
		}
		at = at.Add(took)
		s.End(trace.WithTimestamp(at))
	}
	if text := failure(&t.Change); text != "" {
		root.SetStatus(codes.Error, text)
	}
	root.End(trace.WithTimestamp(t.Observed.Add(total)))
}

func (e *Exporter) recordAnswers(ctx context.Context, sent time.Time, answers []changelog.Answer) {
	for i := range answers {
		a := &answers[i]
		_, s := e.tracer.Start(ctx, "proxy "+a.Name, trace.WithTimestamp(sent), trace.WithAttributes(
			attribute.String("moonsail.proxy.id", a.Proxy), attribute.String("moonsail.proxy.outcome", a.Outcome.String())))
		if a.Outcome == distribution.NACKed {
			s.SetStatus(codes.Error, a.Text)
		}
		if a.At.Before(sent) {
			a.At = sent // another stream's clock
		}
		s.End(trace.WithTimestamp(a.At))
	}
}

// failure describes what is wrong with the end of a change; "" if nothing is.
func failure(c *changelog.Change) string {
	switch {
	case c.State != changelog.Distributed:
		return fmt.Sprintf("%d proxies never answered", c.Proxies.Waiting())
	case c.Proxies.Nacked > 0:
		return fmt.Sprintf("%d proxies refused it", c.Proxies.Nacked)
	}
	return ""
}

// attributesOf returns the attributes of a change. Its lists are of the objects that the change log has, in
// one order.
func attributesOf(c *changelog.Change) []attribute.KeyValue {
	var keys, kinds, operations, versions []string
	for i := range c.Objects {
		o := &c.Objects[i]
		keys, operations, versions = append(keys, o.Key.String()), append(operations, string(o.Operation)), append(versions, o.ResourceVersion)
		if kind := string(o.Kind); !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}
	list := []attribute.KeyValue{
		attribute.Int64("moonsail.revision", int64(c.Revision)), attribute.String("moonsail.state", string(c.State)),
		attribute.StringSlice("moonsail.objects", keys), attribute.StringSlice("moonsail.operations", operations),
		attribute.StringSlice("moonsail.resource_versions", versions), attribute.StringSlice("moonsail.kinds", kinds),
		attribute.Int("moonsail.object_count", c.ObjectCount),
		attribute.Int("moonsail.resources", c.Resources), attribute.Int64("moonsail.bytes", c.Bytes),
		attribute.Bool("moonsail.superseded", c.Superseded),
	}
	for name, n := range map[string]int{
		"concerned": c.Proxies.Concerned, "acked": c.Proxies.Acked, "not_concerned": c.Proxies.NotConcerned,
		"nacked": c.Proxies.Nacked, "gone": c.Proxies.Gone, "superseded": c.Proxies.Superseded,
	} {
		list = append(list, attribute.Int("moonsail.proxies."+name, n))
	}
	if len(c.Objects) == 1 && !c.Objects[0].Committed.IsZero() {
		list = append(list, attribute.String("moonsail.committed", c.Objects[0].Committed.UTC().Format(time.RFC3339Nano)))
	}
	return list
}
