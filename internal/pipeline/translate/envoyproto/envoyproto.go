// Package envoyproto has the parts of Envoy's messages that several packages of translate share: packing and
// durations (envoyproto.go), addresses, metadata and other parts (parts.go), filters (filters.go).
//
// The variables are messages that become parts of others. Nothing may change them.
package envoyproto

import (
	"fmt"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/moonsail/moonsail/internal/config/envoyext"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

// Deterministic encodes all messages: the hash of the bytes is the version of a resource.
var Deterministic = proto.MarshalOptions{Deterministic: true}

// Pack packs a message. It fails if a string is not UTF-8.
func Pack(m proto.Message) (*anypb.Any, error) {
	a := &anypb.Any{}
	if err := anypb.MarshalFrom(a, m, Deterministic); err != nil {
		return nil, fmt.Errorf("%s: %w", m.ProtoReflect().Descriptor().Name(), err)
	}
	return a, nil
}

// MustPack packs a message without text of users.
func MustPack(m proto.Message) *anypb.Any {
	a, err := Pack(m)
	if err != nil {
		panic(err)
	}
	return a
}

// Added returns the resource that a patch of an EnvoyFilter adds. Its content was checked when it was decoded.
func Added[M proto.Message](p *ir.Patch) (out M, err error) {
	m, err := envoyext.Unpack(string(p.Target), p.Value)
	if err != nil {
		return out, fmt.Errorf("%s: spec.configPatches[%d]: %w", p.Origin, p.Index, err)
	}
	out, ok := m.(M)
	if !ok {
		return out, fmt.Errorf("%s: spec.configPatches[%d]: unexpected type %T of the value", p.Origin, p.Index, m)
	}
	return out, nil
}

// ADS is the stream by which the resource itself came. Envoy waits without limit for what the resource refers
// to: with a limit, a slow control plane would cause failed requests.
var ADS = &corev3.ConfigSource{
	ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
	InitialFetchTimeout:   NoDuration,
	ResourceApiVersion:    corev3.ApiVersion_V3,
}

// ADSBounded is ADS, but Envoy waits no longer than its default, 15 seconds.
var ADSBounded = &corev3.ConfigSource{
	ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
	ResourceApiVersion:    corev3.ApiVersion_V3,
}

// Constants as messages.
var (
	NoDuration = &durationpb.Duration{} // disables a timeout
	True       = wrapperspb.Bool(true)
	False      = wrapperspb.Bool(false)
)

// Duration returns nil for 0: Envoy's default.
func Duration(d time.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationpb.New(d)
}

// OptionalDuration keeps 0 and nil apart.
func OptionalDuration(d *time.Duration) *durationpb.Duration {
	if d == nil {
		return nil
	}
	return durationpb.New(*d)
}

// UInt32 returns nil for 0: Envoy's default.
func UInt32(n uint32) *wrapperspb.UInt32Value {
	if n == 0 {
		return nil
	}
	return wrapperspb.UInt32(n)
}
