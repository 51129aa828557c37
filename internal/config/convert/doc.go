// Package convert has what the converters of all kinds share: metadata, label selectors, visibility, and checks of
// host names, ports, durations, headers and credentials. A check adds an error to the report of the object.
package convert
