// Command moonsail is the whole mesh in one binary: control plane, agent and doctor.
package main

import (
	"os"

	"github.com/moonsail/moonsail/internal/cli"
)

func main() {
	os.Exit(cli.Execute())
}
