package main

//lint:file-ignore SA1019 classic JSON is what all supported versions of Grafana read from files

import (
	"bytes"
	"encoding/json"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// Names by which dashboards and alerts refer to each other. They never change.
const (
	overviewUID = "claimq-overview"
	queueUID    = "claimq-queue"
	workersUID  = "claimq-workers"
	tag         = "claimq"
)

// Selectors with the variables in them: of series with a queue, and of those
// that belong to a process as a whole.
const (
	sel  = `job=~"$job",instance=~"$instance",queue=~"$queue"`
	proc = `job=~"$job",instance=~"$instance"`
)

// queueLink leads from a series or row with a queue to that queue's dashboard.
func queueLink(queue string) dashboard.DashboardLink {
	return dashboard.DashboardLink{
		Title: "Show this queue",
		Type:  dashboard.DashboardLinkTypeLink,
		Tags:  []string{},
		Url:   cog.ToPtr("/d/" + queueUID + "?var-queue=" + queue + "&${datasource:queryparam}&${__url_time_range}"),
	}
}

func datasourceRef() common.DataSourceRef {
	return common.DataSourceRef{Type: cog.ToPtr("prometheus"), Uid: cog.ToPtr("${datasource}")}
}

// row is a titled part of a dashboard. Its panels are set from left to right,
// and each line of them fills the 24 columns.
type row struct {
	title  string
	panels []panel
}

// newDashboard returns the dashboard as JSON with sorted keys.
func newDashboard(uid, title, about string, rows []row) ([]byte, error) {
	b := dashboard.NewDashboardBuilder(title).
		Uid(uid).
		Description(about).
		Tags([]string{tag}).
		Readonly().
		Timezone("browser").
		Refresh("30s").
		Time("now-3h", "now").
		Tooltip(dashboard.DashboardCursorSyncCrosshair).
		Variables(variables()).
		Links(dashboardLinks()).
		Annotations(annotations())
	var id, y uint32
	for _, r := range rows {
		id++
		b.WithRow(dashboard.NewRowBuilder(r.title).Id(id).GridPos(dashboard.GridPos{X: 0, Y: y, W: 24, H: 1}))
		y++
		var x, line uint32
		for _, p := range r.panels {
			id++
			built, err := p.build(id, dashboard.GridPos{X: x, Y: y, W: p.width, H: p.tall()})
			if err != nil {
				return nil, err
			}
			b.WithPanel(built)
			line = max(line, p.tall())
			if x += p.width; x >= 24 {
				x, y, line = 0, y+line, 0
			}
		}
		y += line
	}
	d, err := b.Build()
	if err != nil {
		return nil, err
	}
	return sorted(d)
}

// sorted encodes the dashboard with sorted keys and without an id, which only
// an installation can give.
func sorted(d dashboard.Dashboard) ([]byte, error) {
	raw, err := json.Marshal(d)
	if err != nil {
		return nil, err
	}
	var m map[string]any
	if err := json.Unmarshal(raw, &m); err != nil {
		return nil, err
	}
	m["id"] = nil
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	err = enc.Encode(m)
	return b.Bytes(), err
}

func variables() []cog.Builder[dashboard.VariableModel] {
	query := func(name, label, expr, about string) *dashboard.QueryVariableBuilder {
		return dashboard.NewQueryVariableBuilder(name).
			Label(label).
			Description(about).
			Datasource(datasourceRef()).
			Query(dashboard.StringOrMap{Map: map[string]any{"query": expr, "refId": name}}).
			Definition(expr).
			Refresh(dashboard.VariableRefreshOnTimeRangeChanged).
			Sort(dashboard.VariableSortAlphabeticalAsc).
			Multi(true).
			IncludeAll(true).
			Current(option("All", "$__all"))
	}
	return []cog.Builder[dashboard.VariableModel]{
		dashboard.NewDatasourceVariableBuilder("datasource").
			Label("Data source").
			Description("The Prometheus that scrapes the workers.").
			Type("prometheus").
			Current(option("default", "default")),
		// All jobs are those that export claimq's metrics, never all of Prometheus.
		query("job", "Job", "label_values(claimq_build_info, job)", "Which deployments."),
		query("instance", "Instance", `label_values(claimq_build_info{job=~"$job"}, instance)`, "Which processes.").AllValue(".+"),
		query("queue", "Queue", `label_values(claimq_collector_success{job=~"$job"}, queue)`, "Which queues.").AllValue(".+"),
	}
}

func option(text, value string) dashboard.VariableOption {
	return dashboard.VariableOption{
		Selected: cog.ToPtr(true),
		Text:     dashboard.StringOrArrayOfString{String: &text},
		Value:    dashboard.StringOrArrayOfString{String: &value},
	}
}

// dashboardLinks lists the other dashboards, and the page for operators.
func dashboardLinks() []cog.Builder[dashboard.DashboardLink] {
	link := func(l dashboard.DashboardLink) cog.Builder[dashboard.DashboardLink] {
		return ready[dashboard.DashboardLink]{l}
	}
	return []cog.Builder[dashboard.DashboardLink]{
		link(dashboard.DashboardLink{
			Title: "claimq", Type: dashboard.DashboardLinkTypeDashboards, Tags: []string{tag}, Icon: "external link",
			Tooltip: "The other claimq dashboards, with the same time and variables", KeepTime: true, IncludeVars: true,
		}),
		link(dashboard.DashboardLink{
			Title: "What to do", Type: dashboard.DashboardLinkTypeLink, Tags: []string{}, Icon: "doc", Url: cog.ToPtr(runbook),
			Tooltip: "One section for each alert: what it means, what to do, how to see that it worked", TargetBlank: true,
		}),
	}
}

// The queries of the annotations.
const (
	// Also of a process that was away for longer than the range.
	restartsExpr = `changes(process_start_time_seconds{` + proc + `}[$__rate_interval]) > 0 or time() - process_start_time_seconds{` + proc + `} < 60`
	buildsExpr   = `count by (version, revision) (claimq_build_info{` + proc + `}) unless count by (version, revision) (claimq_build_info{` + proc + `} offset 5m)`
	alertsExpr   = `ALERTS{alertname=~"Claimq.+",alertstate="firing"}`
)

func annotations() []cog.Builder[dashboard.AnnotationQuery] {
	query := func(name, expr, color, title, text string) cog.Builder[dashboard.AnnotationQuery] {
		return ready[dashboard.AnnotationQuery]{dashboard.AnnotationQuery{
			Name: name, Datasource: cog.ToPtr(datasourceRef()), Enable: true, IconColor: color,
			Expr: &expr, TitleFormat: &title, TextFormat: &text,
		}}
	}
	return []cog.Builder[dashboard.AnnotationQuery]{
		query("Alerts", alertsExpr, "red", "{{alertname}}", "{{queue}} {{instance}}"),
		query("Starts", restartsExpr, "orange", "Start", "{{instance}}"),
		query("New builds", buildsExpr, "blue", "New build", "{{version}} {{revision}}"),
	}
}
