// Package file is the embedded source: a directory tree of YAML and JSON, watched.
//
// How the parts fit: tree.go finds and reads files, parse.go makes documents of them,
// load.go reports whether what a file says now is whole, or may still be in the making, and
// catalog.go (pure) knows which object of which file is in force and what events a
// change of a file means; watchtree.go watches all folders, and source.go feeds the intake.
//
// Invariants:
//   - Nothing that was in force goes out of force because of a mistake: a file that
//     does not parse, or a document with errors, leaves the last good objects there.
//     Where no version was ever good (after a restart none is known), what is good of
//     policies counts: istio.Partial. Where even that cannot be read, nothing is served
//     until it can (hidden.go).
//   - All changes that are found together, be it in one file or in a directory that
//     was swapped as a whole, are one Put.
//   - An object that did not change in content gives no event, wherever it moved.
package file
