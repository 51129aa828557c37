// Package problem describes mistakes in objects: object and field, severity, and what to do.
// Converters collect problems in a Report; a Path names the field.
package problem
