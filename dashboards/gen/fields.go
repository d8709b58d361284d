package main

import (
	"maps"
	"math"
	"slices"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func colorBy(mode dashboard.FieldColorModeId) cog.Builder[dashboard.FieldColor] {
	return dashboard.NewFieldColorBuilder().Mode(mode)
}

func byName(name string, properties ...dashboard.DynamicConfigValue) dashboard.DashboardFieldConfigSourceOverrides {
	return dashboard.DashboardFieldConfigSourceOverrides{
		Matcher:    dashboard.MatcherConfig{Id: "byName", Options: name},
		Properties: properties,
	}
}

// thresholds makes the steps of limits; the first holds from below.
func thresholds(limits []limit) *dashboard.ThresholdsConfig {
	t := &dashboard.ThresholdsConfig{Mode: dashboard.ThresholdsModeAbsolute}
	for i, l := range limits {
		step := dashboard.Threshold{Color: l.color}
		if i > 0 {
			step.Value = &l.from
		}
		t.Steps = append(t.Steps, step)
	}
	return t
}

// mappings makes ranges of words; an infinite end is open.
func mappings(list []word) []dashboard.ValueMapping {
	var out []dashboard.ValueMapping
	for i, w := range list {
		m := dashboard.NewRangeMap()
		if !math.IsInf(w.from, 0) {
			m.Options.From = &w.from
		}
		if !math.IsInf(w.to, 0) {
			m.Options.To = &w.to
		}
		m.Options.Result = dashboard.ValueMappingResult{
			Text: &w.text, Color: &w.color, Index: cog.ToPtr(int32(i)),
		}
		out = append(out, dashboard.ValueMapping{RangeMap: m})
	}
	return out
}

// Colours mean a state, the same everywhere.
const (
	good  = "green"
	quiet = "blue" // nothing to do, or nothing known to be wrong
	wary  = "orange"
	bad   = "red"
)

var stateColors = map[string]string{
	"waiting": "blue", "pending": "purple", "scheduled": "light-blue", "dead": "red",
	"completed": "green", "retried": "orange", "released": "blue", "lost": "dark-red",
	"new": "green", "reclaimed": "orange",
	"active": "green", "stale": "orange",
}

// colorsOf picks the colours of states that a panel names.
func colorsOf(names ...string) map[string]string {
	m := map[string]string{}
	for _, n := range names {
		m[n] = stateColors[n]
	}
	return m
}

// upTo are limits with a wary and a bad value; a wary value of 0 leaves it out.
func upTo(warn, fail float64) []limit {
	if warn == 0 {
		return []limit{{0, good}, {fail, bad}}
	}
	return []limit{{0, good}, {warn, wary}, {fail, bad}}
}
