// Package load makes requests, and answers them, with Fortio, as the reports' authors did.
//
// Both run in processes of their own (Command, and `moonsail-lab load`): their CPU time can be
// told from the lab's, they end with it, and Fortio's own handling of signals disturbs nobody.
package load
