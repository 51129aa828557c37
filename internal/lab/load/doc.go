// Package load sends requests and answers them with Fortio, as the authors of the repeated reports did.
//
// Both run in separate processes (Command, and `moonsail-lab load`). Their CPU time is therefore separate from the lab's, they
// end with it, and Fortio's handling of signals has no effect on the lab.
package load
