//go:build !defects

package defect

// On reports whether the defect is planted: never, without the tag.
func (Defect) On() bool { return false }
