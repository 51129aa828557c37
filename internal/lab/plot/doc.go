// Package plot draws the plots of the lab's reports as inline SVG. Colours are CSS classes of Style, so that one plot
// is readable in light and dark mode and on paper.
package plot
