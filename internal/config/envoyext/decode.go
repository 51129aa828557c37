package envoyext

import (
	"encoding/json"
	"fmt"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/moonsail/moonsail/internal/config/goduration"
)

// Finding is something that is wrong with a value.
type Finding struct {
	Path    string // from the value on: "typed_config.http_filters[0]"; empty: the value
	Message string
	Fatal   bool // the value cannot be used; else the field is left out
}

// Decode reads a value, as users write it, into a message. Fields that the message does not
// have are left out: they may be those of another version of Envoy. What is packed as a
// TypedStruct is unpacked and checked as the type that it stands for.
func Decode(value *structpb.Struct, into proto.Message) []Finding {
	c := &checker{}
	c.object("", value, into.ProtoReflect().Descriptor())
	if fatal(c.findings) {
		return c.findings
	}
	if err := unmarshal(unpackedStruct(value), into); err != nil {
		c.fatal("", "cannot be read: %s", reason(err))
	}
	return c.findings
}

func fatal(list []Finding) bool {
	for _, f := range list {
		if f.Fatal {
			return true
		}
	}
	return false
}

func unmarshal(value *structpb.Struct, into proto.Message) error {
	text, err := json.Marshal(goduration.ToSeconds(value.AsMap(), into.ProtoReflect().Descriptor()))
	if err != nil {
		return err
	}
	return protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(text, into)
}

// reason returns protojson's message without the position, which is in a text that the user has not seen.
func reason(err error) string {
	text := strings.ReplaceAll(err.Error(), " ", " ") // protobuf's errors have such a space at times
	text = strings.TrimPrefix(text, "proto: ")
	if rest, ok := strings.CutPrefix(text, "(line "); ok {
		if _, after, found := strings.Cut(rest, "): "); found {
			return after
		}
	}
	return text
}

// checker compares a value with a type of message. It collects all findings, not only the first.
type checker struct{ findings []Finding }

// maxFindings limits the findings for one message. More would not be read.
const maxFindings = 20

func (c *checker) add(f Finding) {
	if len(c.findings) < maxFindings || f.Fatal && !fatal(c.findings) {
		c.findings = append(c.findings, f)
	}
}

func (c *checker) fatal(at, format string, args ...any) {
	c.add(Finding{Path: at, Message: fmt.Sprintf(format, args...), Fatal: true})
}

func (c *checker) warn(at, format string, args ...any) {
	c.add(Finding{Path: at, Message: fmt.Sprintf(format, args...)})
}

func join(at, field string) string {
	if at == "" {
		return field
	}
	return at + "." + field
}
