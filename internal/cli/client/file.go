package client

import (
	"errors"
	"io/fs"
	"os"

	"github.com/moonsail/moonsail/internal/source/file"
	"github.com/moonsail/moonsail/internal/terminal"
)

// ReadYAML reads the file that a flag names. If it is not valid YAML, the error has the line.
func ReadYAML(flag, path string) ([]byte, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, Unreadable(flag, path, err)
	}
	if p := file.Syntax(path, text); p != nil {
		return nil, &terminal.UserError{What: flag + ": " + p.Message, Where: p.Where(), Next: "correct the file"}
	}
	return text, nil
}

// Unreadable returns the error for a file of a flag that cannot be read. It names the path once.
func Unreadable(flag, path string, err error) error {
	var at *fs.PathError
	if errors.As(err, &at) {
		err = at.Err
	}
	return &terminal.UserError{What: "cannot read it", Where: flag + " " + path, Err: err, Next: "name an existing YAML file"}
}
