// Package nametable encodes the names of the mesh for the DNS proxies of sidecars, as Istio's
// istio.networking.nds.v1.NameTable.
package nametable

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/moonsail/moonsail/internal/xds/wire"
)

// TypeURL is the type of the resource.
const TypeURL = "type.googleapis.com/istio.networking.nds.v1.NameTable"

// Kubernetes is the registry of Services.
const Kubernetes = "Kubernetes"

// Entry is one host.
type Entry struct {
	Host      string // "reviews.shop.svc.cluster.local", "api.example.com", "*.example.com"
	Addresses []string
	// Of Services, which also have shorter names.
	Registry, ShortName, Namespace string
}

// Field numbers of NameTable and its NameInfo.
const (
	fieldTable, fieldKey, fieldValue                             = 1, 1, 2
	fieldIPs, fieldRegistry, fieldShortName, fieldNamespace uint = 1, 2, 3, 4
)

// Encode returns the encoded table. Equal tables have equal bytes.
func Encode(entries ...Entry) []byte {
	entries = slices.Clone(entries)
	slices.SortFunc(entries, func(a, b Entry) int { return strings.Compare(a.Host, b.Host) })
	var out []byte
	for _, e := range entries {
		pair := wire.AppendField(nil, fieldKey, e.Host)
		pair = wire.AppendField(pair, fieldValue, e.info())
		out = wire.AppendField(out, fieldTable, pair)
	}
	return out
}

func (e *Entry) info() []byte {
	var b []byte
	for _, a := range e.Addresses {
		b = wire.AppendField(b, protowire.Number(fieldIPs), a)
	}
	for _, f := range []struct {
		number uint
		text   string
	}{{fieldRegistry, e.Registry}, {fieldShortName, e.ShortName}, {fieldNamespace, e.Namespace}} {
		if f.text != "" {
			b = wire.AppendField(b, protowire.Number(f.number), f.text)
		}
	}
	return b
}

// Decode decodes a table. It skips unknown fields.
func Decode(b []byte) ([]Entry, error) {
	var out []Entry
	err := wire.Fields(b, func(n protowire.Number, v []byte) error {
		if n != fieldTable {
			return nil
		}
		var e Entry
		if err := e.decode(v); err != nil {
			return err
		}
		out = append(out, e)
		return nil
	})
	if err != nil {
		return out, fmt.Errorf("invalid name table: %w", err)
	}
	return out, nil
}

func (e *Entry) decode(b []byte) error {
	return wire.Fields(b, func(n protowire.Number, v []byte) error {
		switch n {
		case fieldKey:
			e.Host = string(v)
		case fieldValue:
			return wire.Fields(v, e.field)
		}
		return nil
	})
}

func (e *Entry) field(n protowire.Number, v []byte) error {
	switch uint(n) {
	case fieldIPs:
		e.Addresses = append(e.Addresses, string(v))
	case fieldRegistry:
		e.Registry = string(v)
	case fieldShortName:
		e.ShortName = string(v)
	case fieldNamespace:
		e.Namespace = string(v)
	}
	return nil
}
