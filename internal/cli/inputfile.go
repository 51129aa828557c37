package cli

import (
	"errors"
	"io/fs"
	"os"

	"github.com/moonsail/moonsail/internal/source/file"
	"github.com/moonsail/moonsail/internal/terminal"
)

// readYAML reads the file of a flag, and says at which line it is broken.
func readYAML(flag, path string) ([]byte, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, unreadable(flag, path, err)
	}
	if p := file.Syntax(path, text); p != nil {
		return nil, &terminal.UserError{What: flag + ": " + p.Message, Where: p.Where(), Next: "correct it"}
	}
	return text, nil
}

// unreadable is what cannot be read of what a flag names, without the path twice.
func unreadable(flag, path string, err error) error {
	var at *fs.PathError
	if errors.As(err, &at) {
		err = at.Err
	}
	return &terminal.UserError{What: "cannot be read", Where: flag + " " + path, Err: err, Next: "name a file of YAML that is there"}
}
