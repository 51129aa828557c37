// Command moonsail-lab runs experiments on Moonsail: what changes, requests and options cost.
package main

import (
	"os"

	"github.com/moonsail/moonsail/internal/lab/cli"
)

func main() {
	os.Exit(cli.Execute())
}
