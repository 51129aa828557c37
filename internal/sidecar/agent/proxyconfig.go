package agent

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/moonsail/moonsail/internal/config/proxyconfig"
	"github.com/moonsail/moonsail/internal/model"
)

// ProxyConfigAnnotation is the pod annotation that overrides a sidecar's ProxyConfig.
const ProxyConfigAnnotation = "proxy.istio.io/config"

// overlay is base with each field that is set in top; maps are merged by key.
func overlay(base, top *meshconfig.ProxyConfig) *meshconfig.ProxyConfig {
	merged := &meshconfig.ProxyConfig{}
	if base != nil {
		merged = proto.Clone(base).(*meshconfig.ProxyConfig)
	}
	into := merged.ProtoReflect()
	top.ProtoReflect().Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if !f.IsMap() {
			into.Set(f, v)
			return true
		}
		m := into.Mutable(f).Map()
		v.Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
			m.Set(k, v)
			return true
		})
		return true
	})
	return merged
}

func (s *settings) resolveProxyConfig() error {
	pc := overlay(s.ProxyConfig, &meshconfig.ProxyConfig{})
	if text, ok := s.Workload.Annotations[ProxyConfigAnnotation]; ok {
		top, err := proxyconfig.Parse(text, fmt.Sprintf("annotation %s of pod %s", ProxyConfigAnnotation, s.Workload.Name))
		if err != nil {
			return err
		}
		s.ownTracing = top.GetTracing()
		pc = overlay(pc, top)
	}
	s.proxyConfig = pc
	if err := s.resolveConcurrency(); err != nil {
		return err
	}
	if err := s.portsFromProxyConfig(); err != nil {
		return err
	}
	var err error
	if s.buckets, err = s.histogramBuckets(); err != nil {
		return err
	}
	if d := s.proxyConfig.GetFileFlushInterval(); d != nil && d.AsDuration() < time.Millisecond {
		return fmt.Errorf("fileFlushInterval %s in %s is too short: use 1ms or more", d.AsDuration(), ProxyConfigAnnotation)
	}
	return s.resolveDrain()
}

// UnreadAnnotations are annotations of Istio that have no effect on sidecars. The agent warns of each that is set.
var UnreadAnnotations = []string{
	"sidecar.istio.io/bootstrapOverride", "sidecar.istio.io/discoveryAddress", "sidecar.istio.io/enableCoreDump", "sidecar.istio.io/statsCompression",
	"sidecar.istio.io/statsEvictionInterval", "sidecar.istio.io/statsFlushInterval", "sidecar.istio.io/statsHistogramBins",
}

// tellUnread warns of fields and annotations that are set and do nothing.
func (s *settings) tellUnread() {
	said := slices.DeleteFunc(slices.Clone(UnreadAnnotations), func(name string) bool { _, is := s.Workload.Annotations[name]; return !is })
	if len(said) > 0 {
		s.log.Warn("annotations have no effect in Moonsail yet", "annotations", strings.Join(said, ", "))
	}
	out := unreadFields(s.proxyConfig, "", model.ProxyConfigFields)
	if h := s.proxyConfig.GetProxyHeaders(); h != nil {
		out = append(out, unreadFields(h, "proxyHeaders.", model.ProxyHeadersFields)...)
	}
	if slices.Sort(out); len(out) > 0 {
		s.log.Warn("fields of ProxyConfig have no effect in Moonsail yet", "fields", strings.Join(out, ", "))
	}
	s.tellTracing()
}

// unreadFields are the names of fields that are set and not read.
func unreadFields(m protoreflect.ProtoMessage, above string, read []string) (out []string) {
	m.ProtoReflect().Range(func(f protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		if !slices.Contains(read, f.JSONName()) {
			out = append(out, above+f.JSONName())
		}
		return true
	})
	return out
}

// portsFromProxyConfig takes the two ports that Istio's ProxyConfig knows.
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

func (s *settings) resolveDrain() error {
	s.drainTime, s.listenDrain = DefaultDrainTime, defaultListenerDrain
	if d := s.proxyConfig.GetTerminationDrainDuration(); d != nil {
		s.drainTime = d.AsDuration()
	}
	if d := s.proxyConfig.GetDrainDuration(); d != nil {
		s.listenDrain = d.AsDuration()
	}
	if s.DrainTime != nil {
		s.drainTime = *s.DrainTime
	}
	if s.drainTime < 0 || s.listenDrain < time.Second || s.MinDrain < 0 {
		return fmt.Errorf("drain times must not be negative, and drainDuration at least 1s: "+
			"--drain-time %s, --min-drain-time %s, drainDuration %s", s.drainTime, s.MinDrain, s.listenDrain)
	}
	// Listeners must not close while connections may still come.
	s.listenDrain = max(s.listenDrain, s.drainTime)
	return nil
}
