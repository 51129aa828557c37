package client

import (
	"errors"
	"io/fs"

	"github.com/moonsail/moonsail/internal/sidecar/envoy"
	"github.com/moonsail/moonsail/internal/terminal"
)

// NoEnvoy puts the errors of envoy.Find into the form that users see. It returns other errors unchanged.
func NoEnvoy(err error) error {
	var unusable *envoy.UnusableError
	if !errors.As(err, &unusable) {
		return err
	}
	cause := unusable.Err
	var at *fs.PathError
	if errors.As(cause, &at) {
		cause = at.Err // Where has the path
	}
	return &terminal.UserError{What: "not an executable file", Where: unusable.Source + " " + unusable.Path, Err: cause,
		Next: "correct it, or leave it out and run 'moonsail envoy install'"}
}
