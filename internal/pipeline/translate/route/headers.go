package route

import (
	"fmt"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"golang.org/x/net/http/httpguts"

	"github.com/moonsail/moonsail/internal/config/envoyformat"
	"github.com/moonsail/moonsail/internal/model"
)

// headerOps are header operations in one direction, in Envoy's form.
type headerOps struct {
	add    []*corev3.HeaderValueOption
	remove []string
	// authority is the value of :authority or host, which Envoy sets by a rewrite.
	authority string
}

func headers(ops *model.HeaderOps) (headerOps, error) {
	var out headerOps
	if err := out.addAll(ops.Add, corev3.HeaderValueOption_APPEND_IF_EXISTS_OR_ADD); err != nil {
		return out, err
	}
	added := out.add
	out.add = nil
	// Set is first, so that Add appends to it.
	if err := out.addAll(ops.Set, corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD); err != nil {
		return out, err
	}
	out.add = append(out.add, added...)
	for _, name := range ops.Remove {
		if !isPseudo(name) {
			out.remove = append(out.remove, name)
		}
	}
	return out, nil
}

func (o *headerOps) addAll(list []model.HeaderValue, action corev3.HeaderValueOption_HeaderAppendAction) error {
	for _, h := range list {
		if isPseudo(h.Name) {
			if strings.EqualFold(h.Name, ":authority") || strings.EqualFold(h.Name, "host") {
				o.authority = h.Value
			}
			continue
		}
		if !httpguts.ValidHeaderFieldName(h.Name) {
			return fmt.Errorf("header %q: invalid name", h.Name)
		}
		if err := envoyformat.CheckHeader(h.Value); err != nil {
			return fmt.Errorf("header %s: %w", h.Name, err)
		}
		o.add = append(o.add, &corev3.HeaderValueOption{
			Header:       &corev3.HeaderValue{Key: h.Name, Value: h.Value},
			AppendAction: action,
		})
	}
	return nil
}

// isPseudo reports whether Envoy does not allow header operations for a header.
func isPseudo(name string) bool {
	return strings.HasPrefix(name, ":") || strings.EqualFold(name, "host")
}
