package route

import (
	"fmt"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"golang.org/x/net/http/httpguts"

	"github.com/moonsail/moonsail/internal/config/envoyformat"
	"github.com/moonsail/moonsail/internal/model"
)

// headerOps are the changes of one direction, as Envoy has them on routes and clusters.
type headerOps struct {
	add    []*corev3.HeaderValueOption
	remove []string
	// authority is what :authority or host is set to: a rewrite, not a header, for Envoy.
	authority string
}

func headers(ops *model.HeaderOps) (headerOps, error) {
	var out headerOps
	if err := out.addAll(ops.Add, corev3.HeaderValueOption_APPEND_IF_EXISTS_OR_ADD); err != nil {
		return out, err
	}
	added := out.add
	out.add = nil
	// Set comes first, so that what is added is added to what was set.
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
			return fmt.Errorf("%q is not a header name", h.Name)
		}
		if err := envoyformat.Check(h.Value); err != nil {
			return fmt.Errorf("header %s: %w", h.Name, err)
		}
		o.add = append(o.add, &corev3.HeaderValueOption{
			Header:       &corev3.HeaderValue{Key: h.Name, Value: h.Value},
			AppendAction: action,
		})
	}
	return nil
}

// isPseudo tells whether Envoy lets nobody change a header.
func isPseudo(name string) bool {
	return strings.HasPrefix(name, ":") || strings.EqualFold(name, "host")
}
