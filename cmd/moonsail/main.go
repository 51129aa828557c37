// Command moonsail runs and inspects a service mesh: control plane, agent, and commands for users.
package main

import (
	"os"

	"github.com/moonsail/moonsail/internal/cli"
)

func main() {
	os.Exit(cli.Execute())
}
