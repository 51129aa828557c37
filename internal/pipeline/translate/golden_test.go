package translate

import (
	"flag"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/moonsail/moonsail/internal/pipeline/translate/envoyproto"
)

var update = flag.Bool("update", false, "write the results to testdata")

// TestGolden compares the translations of IR values with the files in testdata.
func TestGolden(t *testing.T) {
	results := map[string]map[string]string{}
	for _, c := range corpus(t) {
		t.Run(c.title(), func(t *testing.T) {
			translate, ok := translators[c.kind()]
			require.True(t, ok, "unknown kind %q", c.kind())
			m, err := translate(c.value)
			got := printed(t, m, err)
			if *update {
				if results[c.archive] == nil {
					results[c.archive] = map[string]string{}
				}
				results[c.archive][c.name] = got
				return
			}
			require.NotContains(t, got, "the value in the test:")
			require.Equal(t, string(c.want), got)
		})
	}
	rewrite(t, results)
}

// TestValid validates every message, and everything packed in it, by the rules of Envoy's API.
func TestValid(t *testing.T) {
	for _, c := range corpus(t) {
		t.Run(c.title(), func(t *testing.T) {
			m, err := translators[c.kind()](c.value)
			if err != nil {
				return
			}
			validateDeep(t, m)
		})
	}
}

func validateDeep(t *testing.T, m proto.Message) {
	t.Helper()
	v, ok := m.(interface{ ValidateAll() error })
	if ok {
		require.NoError(t, v.ValidateAll())
	}
	for _, a := range anysIn(m.ProtoReflect()) {
		inner, err := a.UnmarshalNew()
		require.NoError(t, err)
		validateDeep(t, inner)
	}
}

// anysIn returns the packed messages in m, but not those inside them.
func anysIn(m protoreflect.Message) []*anypb.Any {
	if a, ok := m.Interface().(*anypb.Any); ok {
		return []*anypb.Any{a}
	}
	var out []*anypb.Any
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsMap():
			if f.MapValue().Message() != nil {
				v.Map().Range(func(_ protoreflect.MapKey, e protoreflect.Value) bool {
					out = append(out, anysIn(e.Message())...)
					return true
				})
			}
		case f.Message() == nil:
		case f.IsList():
			for i := range v.List().Len() {
				out = append(out, anysIn(v.List().Get(i).Message())...)
			}
		default:
			out = append(out, anysIn(v.Message())...)
		}
		return true
	})
	return out
}

// TestDeterministic checks that equal IR values have equal bytes, whose hash is the version.
func TestDeterministic(t *testing.T) {
	for _, c := range corpus(t) {
		first, err := translators[c.kind()](c.value)
		if err != nil {
			continue
		}
		want, err := envoyproto.Deterministic.Marshal(first)
		require.NoError(t, err)
		for range 8 {
			again, err := translators[c.kind()](c.value)
			require.NoError(t, err)
			got, err := envoyproto.Deterministic.Marshal(again)
			require.NoError(t, err)
			require.Equal(t, want, got, c.title())
		}
	}
}
