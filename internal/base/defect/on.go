//go:build defects

package defect

import (
	"fmt"
	"os"
	"slices"
	"sync/atomic"
)

// Variable is the environment variable that plants a defect.
const Variable = "MOONSAIL_DEFECT"

var planted atomic.Pointer[Defect]

func init() {
	if d := Defect(os.Getenv(Variable)); d != "" {
		if !slices.Contains(All, d) {
			panic(fmt.Sprintf("%s=%s: unknown defect: use one of %v", Variable, d, All))
		}
		Plant(d)
	}
}

// Plant plants a defect instead of the one before. Empty: none.
func Plant(d Defect) { planted.Store(&d) }

// On reports whether the defect is planted.
func (d Defect) On() bool {
	now := planted.Load()
	return now != nil && *now == d
}
