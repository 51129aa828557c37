package child

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
)

// Programs are the command lines that experiments start processes with.
type Programs struct {
	Moonsail []string // of moonsail: control planes and agents
	Lab      []string // of moonsail-lab: loads, applications, and servers to compare with
}

// errNoMoonsail is returned if no moonsail can be measured.
var errNoMoonsail = errors.New("moonsail is neither next to moonsail-lab nor in PATH")

// FindPrograms returns the running binary as moonsail-lab, and the moonsail next to it. Without one there, it returns the
// first moonsail in PATH.
func FindPrograms() (Programs, error) {
	self, err := os.Executable()
	if err != nil {
		return Programs{}, err
	}
	moonsail, err := exec.LookPath(filepath.Join(filepath.Dir(self), "moonsail"))
	if err != nil {
		moonsail, err = exec.LookPath("moonsail")
	}
	if err != nil {
		return Programs{}, errNoMoonsail
	}
	if moonsail, err = filepath.Abs(moonsail); err != nil {
		return Programs{}, err
	}
	return Programs{Moonsail: []string{moonsail}, Lab: []string{self}}, nil
}
