// Command moonsail-cni is the CNI plugin that sets the rules of interception for Pods with a sidecar. The container
// runtime runs it; `moonsail cni agent` installs it. It is a separate program so that it starts fast.
package main

import "github.com/moonsail/moonsail/internal/sidecar/cni/plugin"

func main() { plugin.Main() }
