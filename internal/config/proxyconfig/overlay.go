package proxyconfig

import (
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	meshconfig "istio.io/api/mesh/v1alpha1"
)

// Overlay returns base with the fields that are set in top. It merges maps by key, and replaces all other values. Neither
// argument changes; nil is empty. Wrappers and durations count also if they are false or 0. Of other fields, the zero value
// is not known to be set: an enum's first value, such as interceptionMode REDIRECT, does not replace another one.
func Overlay(base, top *meshconfig.ProxyConfig) *meshconfig.ProxyConfig {
	merged := &meshconfig.ProxyConfig{}
	if base != nil {
		merged = proto.Clone(base).(*meshconfig.ProxyConfig)
	}
	into := merged.ProtoReflect()
	proto.Clone(top).ProtoReflect().Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
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
