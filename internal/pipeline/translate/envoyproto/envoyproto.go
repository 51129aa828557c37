// Package envoyproto has the parts of Envoy's messages that several packages of translate share.
// Variables are messages that are parts of others: they must not be changed.
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

func Added[M proto.Message](p *ir.Patch) (out M, err error) {
	m, err := envoyext.Unpack(string(p.Target), p.Value)
	if err != nil {
		return out, fmt.Errorf("%s: spec.configPatches[%d]: %w", p.Origin, p.Index, err)
	}
	out, ok := m.(M)
	if !ok {
		return out, fmt.Errorf("%s: spec.configPatches[%d]: a %T is not what is added", p.Origin, p.Index, m)
	}
	return out, nil
}

// Deterministic: what is packed becomes part of a content hash.
var Deterministic = proto.MarshalOptions{Deterministic: true}

// Pack fails where a string of the user's is not UTF-8.
func Pack(m proto.Message) (*anypb.Any, error) {
	a := &anypb.Any{}
	if err := anypb.MarshalFrom(a, m, Deterministic); err != nil {
		return nil, fmt.Errorf("%s: %w", m.ProtoReflect().Descriptor().Name(), err)
	}
	return a, nil
}

// MustPack packs a message that is part of the program.
func MustPack(m proto.Message) *anypb.Any {
	a, err := Pack(m)
	if err != nil {
		panic(err)
	}
	return a
}

// ADS is the stream that the resource itself came by. Envoy waits for what it names
// without limit: going on with nothing would turn a slow control plane into errors.
var ADS = &corev3.ConfigSource{
	ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
	InitialFetchTimeout:   NoDuration,
	ResourceApiVersion:    corev3.ApiVersion_V3,
}

// ADSBounded gives up waiting after Envoy's default, 15 seconds.
var ADSBounded = &corev3.ConfigSource{
	ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
	ResourceApiVersion:    corev3.ApiVersion_V3,
}

var (
	NoDuration = &durationpb.Duration{}
	True       = wrapperspb.Bool(true)
	False      = wrapperspb.Bool(false)
)

// Duration leaves 0 to Envoy's default.
func Duration(d time.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationpb.New(d)
}

// UInt32 leaves 0 to Envoy's default.
func UInt32(n uint32) *wrapperspb.UInt32Value {
	if n == 0 {
		return nil
	}
	return wrapperspb.UInt32(n)
}
