package ir

import "github.com/moonsail/moonsail/internal/model"

// Made is part of each value: the objects that it was made from. Envoy does not receive it, so that a value may change only
// in its origins.
type Made struct{ Origins *model.Origins }

// MadeFrom are the objects that the value was made from.
func (m *Made) MadeFrom() *model.Origins { return m.Origins }
