package agent

import (
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/wrapperspb"
	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/moonsail/moonsail/internal/config/proxyconfig"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/sidecar/agent/bootstrap"
)

// ProxyConfigAnnotation is the annotation of a Pod that overrides the mesh's ProxyConfig.
const ProxyConfigAnnotation = "proxy.istio.io/config"

func (s *settings) resolveProxyConfig() error {
	pc := proxyconfig.Overlay(s.ProxyConfig, &meshconfig.ProxyConfig{})
	if text, ok := s.Workload.Annotations[ProxyConfigAnnotation]; ok {
		top, err := proxyconfig.ParseAny(text, fmt.Sprintf("annotation %s of pod %s", ProxyConfigAnnotation, s.Workload.Name))
		if err != nil {
			return err
		}
		s.podTracing = top.GetTracing()
		if unknown := proxyconfig.Unknown(text); len(unknown) > 0 {
			s.log.Warn("annotation of the Pod: unknown fields have no effect", "annotation", ProxyConfigAnnotation, "fields", strings.Join(unknown, "; "))
		}
		pc = proxyconfig.Overlay(pc, top)
	}
	s.proxyConfig = pc
	if err := s.resolveConcurrency(); err != nil {
		return err
	}
	if err := s.portsFromProxyConfig(); err != nil {
		return err
	}
	var err error
	if s.buckets, err = bootstrap.HistogramBuckets(s.Workload.Annotations[bootstrap.BucketsAnnotation]); err != nil {
		return fmt.Errorf("annotation %s of pod %s: %w", bootstrap.BucketsAnnotation, s.Workload.Name, err)
	}
	if d := s.proxyConfig.GetFileFlushInterval(); d != nil && d.AsDuration() < time.Millisecond {
		return fmt.Errorf("fileFlushInterval %s in %s is too short: use at least 1ms", d.AsDuration(), ProxyConfigAnnotation)
	}
	return s.resolveDrain()
}

// portsFromProxyConfig applies the two ports of Istio's ProxyConfig.
func (s *settings) portsFromProxyConfig() error {
	for _, p := range []struct {
		name  string
		value int32
		into  *uint16
	}{
		{"proxyAdminPort", s.proxyConfig.GetProxyAdminPort(), &s.Ports.Admin},
		{"statusPort", s.proxyConfig.GetStatusPort(), &s.Ports.Status},
	} {
		if p.value < 0 || p.value > 65535 {
			return fmt.Errorf("%s in %s: invalid port %d: use 1 to 65535", p.name, ProxyConfigAnnotation, p.value)
		}
		if *p.into == 0 {
			*p.into = uint16(p.value)
		}
	}
	return nil
}

// defaultListenerDrain is Istio's default drainDuration: how long connections of a listener last after the control plane
// has changed or removed the listener.
const defaultListenerDrain = 45 * time.Second

func (s *settings) resolveDrain() error {
	s.drainTime, s.listenerDrain = DefaultDrainTime, defaultListenerDrain
	if d := s.proxyConfig.GetTerminationDrainDuration(); d != nil {
		s.drainTime = d.AsDuration()
	}
	if d := s.proxyConfig.GetDrainDuration(); d != nil {
		s.listenerDrain = d.AsDuration()
	}
	if s.DrainTime != nil {
		s.drainTime = *s.DrainTime
	}
	if s.drainTime < 0 || s.listenerDrain < time.Second || s.MinDrain < 0 {
		return fmt.Errorf("invalid drain time: use 0s or more for --drain-time (%s) and --min-drain-time (%s), and 1s or more for drainDuration (%s)",
			s.drainTime, s.MinDrain, s.listenerDrain)
	}
	// A listener must stay open while connections may still come.
	s.listenerDrain = max(s.listenerDrain, s.drainTime)
	return nil
}

// Settings of the number of connections of clients, beside the field of connectionSettings: Istio's metadata of the node, and
// Envoy's runtime value, which has no effect in an Envoy with a resource monitor.
const (
	maxConnectionsMetadata = "GLOBAL_DOWNSTREAM_MAX_CONNECTIONS"
	maxConnectionsRuntime  = "overload.global_downstream_max_connections"
)

// limitConnections sets the limit of connections: the first valid one, in Istio's order.
func (s *settings) limitConnections() {
	metadata, _ := s.node.Metadata[maxConnectionsMetadata].(string)
	field := ""
	if n := s.proxyConfig.GetConnectionSettings().GetGlobalDownstreamConnectionLimit(); n != nil {
		field = strconv.Itoa(int(n.Value))
	}
	for _, limit := range []struct{ setting, value string }{
		{"connectionSettings." + model.GlobalConnectionLimit, field},
		{MetadataPrefix + maxConnectionsMetadata, metadata},
		{"runtimeValues[" + maxConnectionsRuntime + "]", s.proxyConfig.GetRuntimeValues()[maxConnectionsRuntime]},
	} {
		if limit.value == "" {
			continue
		}
		if n, err := strconv.ParseInt(limit.value, 10, 64); err == nil && n > 0 {
			s.maxConnections = n
			return
		}
		s.log.Warn("limit of connections is ignored: use a number from 1", "setting", limit.setting, "value", limit.value)
	}
}

// maxConcurrency is more than any machine needs. Envoy would accept a larger number, which can only be a mistake.
const maxConcurrency = 1024

// resolveConcurrency sets the number of worker threads: the configured one, most specific source first, else the whole
// CPUs of the CPU limit, at least 1. More threads than CPUs cost memory and connections without a benefit.
func (s *settings) resolveConcurrency() error {
	s.concurrency, s.because = s.chooseConcurrency()
	if s.concurrency < 0 || s.concurrency > maxConcurrency {
		return fmt.Errorf("invalid concurrency %d by %s: use 0 (one thread for each core) to %d: correct --concurrency (or concurrency in %s)",
			s.concurrency, s.because, maxConcurrency, ProxyConfigAnnotation)
	}
	if s.concurrency == 0 && s.CPULimit.CPUs > 0 && s.CPULimit.CPUs < float64(runtime.NumCPU()) {
		s.log.Warn("concurrency is 0 (one thread for each core), which exceeds the CPU limit: the threads will be throttled",
			"cores", runtime.NumCPU(), "limit", s.CPULimit.CPUs, "from", s.CPULimit.From)
	}
	s.proxyConfig.Concurrency = wrapperspb.Int32(int32(s.concurrency))
	return nil
}

func (s *settings) chooseConcurrency() (n int, because string) {
	switch configured := s.proxyConfig.GetConcurrency(); {
	case s.Concurrency != nil:
		return *s.Concurrency, "--concurrency"
	case configured != nil && s.ProxyConfig.GetConcurrency() != nil && s.ProxyConfig.GetConcurrency().GetValue() == configured.GetValue():
		return int(configured.GetValue()), "ProxyConfig (--proxy-config)"
	case configured != nil:
		return int(configured.GetValue()), "annotation " + ProxyConfigAnnotation
	case s.CPULimit.CPUs > 0:
		n := min(max(1, int(s.CPULimit.CPUs)), maxConcurrency)
		return n, fmt.Sprintf("a CPU limit of %g (%s)", s.CPULimit.CPUs, s.CPULimit.From)
	}
	return DefaultConcurrency, "default: no CPU limit is known"
}

// UnreadAnnotations are annotations of Istio that have no effect on sidecars. The agent warns about each that is set.
var UnreadAnnotations = []string{
	"sidecar.istio.io/bootstrapOverride", "sidecar.istio.io/discoveryAddress", "sidecar.istio.io/enableCoreDump", "sidecar.istio.io/statsCompression",
	"sidecar.istio.io/statsEvictionInterval", "sidecar.istio.io/statsFlushInterval", "sidecar.istio.io/statsHistogramBins",
}

// warnUnread warns about fields of ProxyConfig and annotations that are set and have no effect.
func (s *settings) warnUnread() {
	annotations := slices.DeleteFunc(slices.Clone(UnreadAnnotations), func(name string) bool { _, set := s.Workload.Annotations[name]; return !set })
	if len(annotations) > 0 {
		s.log.Warn("annotations have no effect in Moonsail yet", "annotations", strings.Join(annotations, ", "))
	}
	fields := unreadFields(s.proxyConfig, "", model.ProxyConfigFields)
	if h := s.proxyConfig.GetProxyHeaders(); h != nil {
		fields = append(fields, unreadFields(h, "proxyHeaders.", model.ProxyHeadersFields)...)
	}
	if c := s.proxyConfig.GetConnectionSettings(); c != nil {
		fields = append(fields, unreadFields(c, "connectionSettings.", model.ConnectionSettingsFields)...)
	}
	if slices.Sort(fields); len(fields) > 0 {
		s.log.Warn("fields of ProxyConfig have no effect in Moonsail yet", "fields", strings.Join(fields, ", "))
	}
	s.warnTracing()
}

// warnTracing warns about tracing fields of the Pod's annotation that have no effect there.
func (s *settings) warnTracing() {
	t := s.podTracing
	if t == nil {
		return
	}
	fields := unreadFields(t, "tracing.", model.TracingFields)
	if slices.Sort(fields); len(fields) > 0 {
		s.log.Warn("annotation of the Pod: fields about the destination of spans have no effect: use the mesh's configuration or a Telemetry",
			"annotation", ProxyConfigAnnotation, "fields", strings.Join(fields, ", "))
	}
	if t.Sampling < 0 || t.Sampling > 100 {
		s.log.Warn("annotation of the Pod: sampling is ignored: use a percentage from 0 to 100",
			"annotation", ProxyConfigAnnotation, "sampling", t.Sampling)
	}
}

// unreadFields returns the names of the fields of m that are set and not in read, with a prefix.
func unreadFields(m protoreflect.ProtoMessage, prefix string, read []string) (out []string) {
	m.ProtoReflect().Range(func(f protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		if !slices.Contains(read, f.JSONName()) {
			out = append(out, prefix+f.JSONName())
		}
		return true
	})
	return out
}
