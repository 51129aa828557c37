package config

import (
	"encoding"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// dump prints a model object as YAML, without zero fields.
func dump(t *testing.T, v any) string {
	t.Helper()
	var b strings.Builder
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	require.NoError(t, enc.Encode(toNode(reflect.ValueOf(v))))
	return b.String()
}

func toNode(v reflect.Value) *yaml.Node {
	if v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface {
		return toNode(v.Elem())
	}
	if m, ok := v.Interface().(encoding.TextMarshaler); ok {
		text, _ := m.MarshalText()
		return text2node(string(text))
	}
	if d, ok := v.Interface().(time.Duration); ok {
		return text2node(d.String())
	}
	switch v.Kind() {
	case reflect.Struct:
		n := &yaml.Node{Kind: yaml.MappingNode}
		addFields(n, v)
		return n
	case reflect.Map:
		return mapNode(v)
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return text2node(string(v.Bytes()))
		}
		n := &yaml.Node{Kind: yaml.SequenceNode}
		for i := range v.Len() {
			n.Content = append(n.Content, toNode(v.Index(i)))
		}
		return n
	}
	n := &yaml.Node{}
	_ = n.Encode(v.Interface())
	return n
}

func text2node(s string) *yaml.Node {
	n := &yaml.Node{}
	n.SetString(s)
	return n
}

func addFields(n *yaml.Node, v reflect.Value) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		switch {
		case f.Anonymous && v.Field(i).Kind() == reflect.Struct:
			addFields(n, v.Field(i))
		case v.Field(i).IsZero() || f.Name == "Origin":
		default:
			n.Content = append(n.Content, text2node(lowerFirst(f.Name)), toNode(v.Field(i)))
		}
	}
}

// lowerFirst writes "HTTPIdleTimeout" as "httpIdleTimeout".
func lowerFirst(name string) string {
	n := 1
	for n < len(name) && unicode.IsUpper(rune(name[n])) && (n+1 == len(name) || unicode.IsUpper(rune(name[n+1]))) {
		n++
	}
	return strings.ToLower(name[:n]) + name[n:]
}

func mapNode(v reflect.Value) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode}
	keys := v.MapKeys()
	slices.SortFunc(keys, func(a, b reflect.Value) int {
		return strings.Compare(fmt.Sprint(a.Interface()), fmt.Sprint(b.Interface()))
	})
	for _, k := range keys {
		n.Content = append(n.Content, toNode(k), toNode(v.MapIndex(k)))
	}
	return n
}
