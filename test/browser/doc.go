// Package browser tests the dashboard in Chromium, headless: "make dashboard-browser". It is a separate module, because
// it drives Chromium by a library that nothing else needs. Without Chromium its tests fail.
package browser
