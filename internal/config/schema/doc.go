// Package schema checks YAML documents against the types that they are decoded into: Go types by their JSON tags,
// and protobuf messages by their descriptors. It finds the line of a field.
package schema
