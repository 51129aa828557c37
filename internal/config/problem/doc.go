// Package problem has what is wrong with an object: which object and field, how grave, and what to do.
// Converters collect problems in a Report; a Path names the field.
package problem
