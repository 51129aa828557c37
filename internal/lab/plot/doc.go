// Package plot draws the pictures of the lab's reports: inline SVG, whose colours are CSS
// classes of Style, so that one picture is readable on light, on dark and on paper.
package plot
