// Command moonsail-lab runs experiments that measure what changes, requests and settings cost.
package main

import (
	"os"

	"github.com/moonsail/moonsail/internal/lab/cli"
)

func main() {
	os.Exit(cli.Execute())
}
