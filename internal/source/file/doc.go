// Package file is the embedded source: it watches a directory tree of YAML and JSON.
//
// tree.go finds and reads files, parse.go decodes documents, load.go decides whether a file is complete, and catalog.go
// (pure) determines the objects in force and the events of a change. watchtree.go watches all folders, and source.go
// feeds the intake.
//
// Invariants:
//   - A mistake removes nothing that is in force: a file that does not parse, or a document with errors, leaves the last
//     valid objects. Without a valid version, for example after a restart, the valid parts of policies apply. If even
//     these cannot be read, nothing is served (hidden.go).
//   - All changes that are found together, in one file or in a swapped directory, are one Put.
//   - An object with unchanged content causes no event, even if it moved.
package file
