package main

import (
	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/heatmap"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/statetimeline"
	"github.com/grafana/grafana-foundation-sdk/go/table"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

// kind is how a panel shows its values.
type kind int

const (
	lines    kind = iota // over time
	stacked              // over time, one upon the other
	bars                 // over time, for things that are counted: each once, so their range is $__interval
	number               // the present value
	words                // the present value as a word
	rows                 // a table of present values
	heat                 // a histogram over time
	timeline             // states over time
)

// barInterval is the least time for which one bar stands: longer than between
// any two scrapes.
const barInterval = "2m"

// query is one expression. The legend names its series, or in a table its column.
type query struct {
	expr, legend string
	column       column // in a table
}

// column is how a table shows the values of a query.
type column struct {
	unit   string
	limits []limit
	words  []word
}

// limit is a value from which on a colour holds. The first has no value.
type limit struct {
	from  float64
	color string
}

// word is what is shown instead of a value between from and to.
type word struct {
	from, to float64
	text     string
	color    string
}

// panel is one panel of a dashboard.
type panel struct {
	kind      kind
	title     string
	about     string // what to conclude from it
	unit      string
	width     uint32
	height    uint32 // 8 when 0
	queries   []query
	limits    []limit
	words     []word
	noValue   string
	colors    map[string]string // by legend, where a colour means a state
	max       float64           // of the axis; 0: as the values are
	link      string            // to the queue's dashboard: where the queue's name is
	keys      []string          // of a table: labels to show first
	sortBy    string            // of a table: heading
	exemplars bool
}

func (p panel) tall() uint32 {
	if p.height == 0 {
		return 8
	}
	return p.height
}

// ready is what the SDK's builders take, ready made.
type ready[T any] struct{ value T }

func (r ready[T]) Build() (T, error) { return r.value, nil }

func (p panel) build(id uint32, at dashboard.GridPos) (ready[dashboard.Panel], error) {
	var none ready[dashboard.Panel]
	var b cog.Builder[dashboard.Panel]
	switch p.kind {
	case number, words:
		b = p.stat()
	case rows:
		b = p.table()
	case heat:
		b = p.heatmap()
	case timeline:
		b = p.timeline()
	default:
		b = p.series()
	}
	out, err := b.Build()
	if err != nil {
		return none, err
	}
	out.Id, out.GridPos = &id, &at
	out.Title, out.Description = &p.title, &p.about
	out.Datasource = cog.ToPtr(datasourceRef())
	p.fields(&out.FieldConfig.Defaults)
	for i, q := range p.queries {
		target, err := p.target(i, q).Build()
		if err != nil {
			return none, err
		}
		out.Targets = append(out.Targets, target)
	}
	for _, name := range sortedKeys(p.colors) {
		out.FieldConfig.Overrides = append(out.FieldConfig.Overrides, byName(name,
			dashboard.DynamicConfigValue{Id: "color", Value: map[string]any{"mode": "fixed", "fixedColor": p.colors[name]}}))
	}
	return ready[dashboard.Panel]{out}, nil
}

// fields sets what all kinds of panels have in common.
func (p panel) fields(f *dashboard.FieldConfig) {
	f.Unit = &p.unit
	if p.noValue != "" {
		f.NoValue = &p.noValue
	}
	if len(p.limits) > 0 {
		f.Thresholds = thresholds(p.limits)
	}
	if len(p.words) > 0 {
		f.Mappings = mappings(p.words)
	}
	if p.max > 0 {
		f.Max = &p.max
	}
	switch p.kind {
	case lines, stacked, bars, number:
		f.Min = cog.ToPtr(0.0)
	}
	if p.link != "" && p.kind != rows {
		f.Links = []dashboard.DashboardLink{queueLink(p.link)}
	}
}

func (p panel) target(i int, q query) *prometheus.DataqueryBuilder {
	t := prometheus.NewDataqueryBuilder().
		RefId(string(rune('A' + i))).
		Datasource(datasourceRef()).
		EditorMode(prometheus.QueryEditorModeCode).
		Expr(q.expr)
	switch p.kind {
	case number, words:
		// Of now, or none: the last value of a range would stand for "unknown".
		return t.Instant().LegendFormat(q.legend)
	case rows:
		return t.Instant().Format(prometheus.PromQueryFormatTable)
	case heat:
		return t.Range().Format(prometheus.PromQueryFormatHeatmap).LegendFormat("{{le}}").Exemplar(p.exemplars)
	}
	return t.Range().LegendFormat(q.legend).Exemplar(p.exemplars)
}

func (p panel) stat() cog.Builder[dashboard.Panel] {
	b := stat.NewPanelBuilder().
		ReduceOptions(common.NewReduceDataOptionsBuilder().Calcs([]string{"lastNotNull"})).
		ColorScheme(colorBy(dashboard.FieldColorModeIdThresholds)).
		TextMode(common.BigValueTextModeValue).
		GraphMode(common.BigValueGraphModeNone)
	if p.kind == words {
		return b.ColorMode(common.BigValueColorModeBackgroundSolid).JustifyMode(common.BigValueJustifyModeCenter)
	}
	return b.ColorMode(common.BigValueColorModeValue)
}

func (p panel) series() cog.Builder[dashboard.Panel] {
	b := timeseries.NewPanelBuilder().
		ColorScheme(colorBy(dashboard.FieldColorModeIdPaletteClassic)).
		LineWidth(1).
		FillOpacity(10).
		ShowPoints(common.VisibilityModeNever).
		Legend(common.NewVizLegendOptionsBuilder().
			ShowLegend(true).
			DisplayMode(common.LegendDisplayModeTable).
			Placement(common.LegendPlacementBottom).
			Calcs([]string{"lastNotNull", "max"}).
			SortBy("Max").SortDesc(true)). // what happened comes before what did not

		Tooltip(common.NewVizTooltipOptionsBuilder().
			Mode(common.TooltipDisplayModeMulti).
			Sort(common.SortOrderDescending))
	switch p.kind {
	case stacked:
		b.Stacking(common.NewStackingConfigBuilder().Mode(common.StackingModeNormal)).
			FillOpacity(60).LineWidth(0) // the line of a state that nothing is in would lie on top of the others
	case bars:
		b.DrawStyle(common.GraphDrawStyleBars).FillOpacity(60).
			Stacking(common.NewStackingConfigBuilder().Mode(common.StackingModeNormal)).
			Interval(barInterval)
	}
	if len(p.limits) > 0 {
		b.ThresholdsStyle(common.NewGraphThresholdsStyleConfigBuilder().Mode(common.GraphThresholdsStyleModeDashed))
	}
	return b
}

func (p panel) heatmap() cog.Builder[dashboard.Panel] {
	return heatmap.NewPanelBuilder().
		Calculate(false).
		ShowLegend().
		Color(heatmap.NewHeatmapColorOptionsBuilder().Mode(heatmap.HeatmapColorModeScheme).Scheme("Blues").Steps(64)).
		YAxis(heatmap.NewYAxisConfigBuilder().Unit(p.unit)).
		CellValues(heatmap.NewCellValuesBuilder().Unit("short"))
}

func (p panel) timeline() cog.Builder[dashboard.Panel] {
	return statetimeline.NewPanelBuilder().
		ShowValue(common.VisibilityModeNever).
		MergeValues(true).
		RowHeight(0.8).
		ColorScheme(colorBy(dashboard.FieldColorModeIdThresholds)).
		Legend(common.NewVizLegendOptionsBuilder().
			ShowLegend(true).
			DisplayMode(common.LegendDisplayModeList).
			Placement(common.LegendPlacementBottom))
}

// headings of labels in tables.
var headings = map[string]string{
	"queue": "Queue", "job": "Job", "instance": "Instance", "severity": "Severity", "alertname": "Alert",
	"version": "Version", "revision": "Revision", "goversion": "Go",
}

// table shows one line for each combination of the keys and one column for
// each query, after the keys.
func (p panel) table() cog.Builder[dashboard.Panel] {
	rename, index, exclude := map[string]any{}, map[string]any{}, map[string]any{"Time": true, "__name__": true}
	for i, k := range p.keys {
		index[k], rename[k] = i, headings[k]
	}
	b := table.NewPanelBuilder().ShowHeader(true).CellHeight(common.TableCellHeightSm).
		Footer(common.NewTableFooterOptionsBuilder().Show(false).Reducer([]string{}))
	for i, q := range p.queries {
		value := "Value #" + string(rune('A'+i))
		if len(p.queries) == 1 {
			value = "Value"
		}
		if q.legend == "" {
			exclude[value] = true
			continue
		}
		rename[value], index[value] = q.legend, len(p.keys)+i
		b.OverrideByName(q.legend, q.column.properties())
	}
	if p.link != "" {
		b.OverrideByName(headings[p.keys[0]], []dashboard.DynamicConfigValue{{Id: "links", Value: []any{queueLink(p.link)}}})
	}
	if p.sortBy != "" {
		b.SortBy([]cog.Builder[common.TableSortByFieldState]{common.NewTableSortByFieldStateBuilder().DisplayName(p.sortBy)})
	}
	if len(p.queries) > 1 {
		b.WithTransformation(dashboard.DataTransformerConfig{Id: "merge", Options: map[string]any{}})
	}
	return b.WithTransformation(dashboard.DataTransformerConfig{Id: "organize", Options: map[string]any{
		"excludeByName": exclude, "indexByName": index, "renameByName": rename,
	}})
}

func (c column) properties() []dashboard.DynamicConfigValue {
	list := []dashboard.DynamicConfigValue{{Id: "unit", Value: c.unit}}
	if len(c.words) > 0 {
		list = append(list, dashboard.DynamicConfigValue{Id: "mappings", Value: mappings(c.words)})
	}
	if len(c.limits) > 0 {
		list = append(list, dashboard.DynamicConfigValue{Id: "thresholds", Value: thresholds(c.limits)})
	}
	if len(c.limits)+len(c.words) > 0 {
		list = append(list, dashboard.DynamicConfigValue{Id: "custom.cellOptions", Value: map[string]any{"type": "color-text"}})
	}
	return list
}
