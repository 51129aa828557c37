package filters

// Build is build.
var Build = build
