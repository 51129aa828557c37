package results

import "github.com/moonsail/moonsail/internal/lab/experiment"

// Save writes report.json, report.html and profiles into a directory, which it creates.
func (r *Report) Save(dir string) error {
	profiles := map[string][]byte{}
	for _, x := range r.Results {
		for name, content := range x.Profiles {
			profiles[x.Scenario+"-"+name] = content
		}
	}
	return experiment.SaveReport(dir, r, r.WriteHTML, profiles)
}
