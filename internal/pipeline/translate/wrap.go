package translate

import (
	"fmt"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// deterministic: what is packed becomes part of a content hash.
var deterministic = proto.MarshalOptions{Deterministic: true}

// pack fails where a string of the user's is not UTF-8.
func pack(m proto.Message) (*anypb.Any, error) {
	a := &anypb.Any{}
	if err := anypb.MarshalFrom(a, m, deterministic); err != nil {
		return nil, fmt.Errorf("%s: %w", m.ProtoReflect().Descriptor().Name(), err)
	}
	return a, nil
}

// constant packs a message that is part of the program.
func constant(m proto.Message) *anypb.Any {
	a, err := pack(m)
	if err != nil {
		panic(err)
	}
	return a
}

// adsSource is the stream that the resource itself came by. Envoy waits for what it names
// without limit: going on with nothing would turn a slow control plane into errors.
var adsSource = &corev3.ConfigSource{
	ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
	InitialFetchTimeout:   noDuration,
	ResourceApiVersion:    corev3.ApiVersion_V3,
}

// adsSourceBounded gives up waiting after Envoy's default, 15 seconds.
var adsSourceBounded = &corev3.ConfigSource{
	ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
	ResourceApiVersion:    corev3.ApiVersion_V3,
}

var (
	noDuration = &durationpb.Duration{}
	yes        = wrapperspb.Bool(true)
	no         = wrapperspb.Bool(false)
)

// duration leaves 0 to Envoy's default.
func duration(d time.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationpb.New(d)
}

// positive leaves 0 to Envoy's default.
func positive(n uint32) *wrapperspb.UInt32Value {
	if n == 0 {
		return nil
	}
	return wrapperspb.UInt32(n)
}
