package ir

// Bootstrap is what one EnvoyFilter changes of the bootstraps of a scope's proxies.
type Bootstrap struct {
	Made

	Name    string // of the resource; in the order of names they are applied
	Patches []Patch
}
