package ir

import "github.com/moonsail/moonsail/internal/model"

// Made is part of each value: which objects it was made from. It says nothing of what Envoy gets,
// so that a value may change in nothing else.
type Made struct{ Origins *model.Origins }

// MadeFrom are the objects that the value was made from.
func (m *Made) MadeFrom() *model.Origins { return m.Origins }
