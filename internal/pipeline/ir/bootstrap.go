package ir

// Bootstrap is what one EnvoyFilter changes of the bootstraps of a group's proxies.
type Bootstrap struct {
	Made

	Name    string // of the resource; agents apply bootstraps in the order of names
	Patches []Patch
}
