package metrics

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Native histograms beside the classic buckets: each bucket is a tenth wider
// than the one before, with at most so many of them.
const (
	nativeBucketFactor = 1.1
	nativeMaxBuckets   = 160
	nativeMinReset     = time.Hour
)

// family finds a family of the catalogue.
func family(name string) Family {
	for _, f := range catalogue {
		if f.Name == name {
			return f
		}
	}
	panic("metrics: family " + name + " is not in the catalogue")
}

// splitLabel returns the name of a label of the catalogue and, if it is a
// closed one, its values.
func splitLabel(label string) (name string, values []string) {
	name, set, named := strings.Cut(label, ":")
	if !named {
		set = name
	}
	return name, labelValues[set]
}

func (f Family) labelNames() []string {
	var names []string
	for _, l := range f.Labels {
		name, _ := splitLabel(l)
		names = append(names, name)
	}
	return names
}

// values are those of the family's closed label, nil when it has none.
func (f Family) values() []string {
	for _, l := range f.Labels {
		if _, values := splitLabel(l); values != nil {
			return values
		}
	}
	return nil
}

func counter(reg prometheus.Registerer, name string) *prometheus.CounterVec {
	f := family(name)
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: f.FullName(), Help: f.Help}, f.labelNames())
	reg.MustRegister(v)
	return v
}

func gauge(reg prometheus.Registerer, name string) *prometheus.GaugeVec {
	f := family(name)
	v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: f.FullName(), Help: f.Help}, f.labelNames())
	reg.MustRegister(v)
	return v
}

func histogram(reg prometheus.Registerer, name string) *prometheus.HistogramVec {
	f := family(name)
	v := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: f.FullName(), Help: f.Help, Buckets: f.Buckets,
		NativeHistogramBucketFactor:     nativeBucketFactor,
		NativeHistogramMaxBucketNumber:  nativeMaxBuckets,
		NativeHistogramMinResetDuration: nativeMinReset,
	}, f.labelNames())
	reg.MustRegister(v)
	return v
}

// instruments are the counters and histograms that come from one side.
type instruments struct {
	counters   map[string]*prometheus.CounterVec
	histograms map[string]*prometheus.HistogramVec
}

func register(reg prometheus.Registerer, from string) instruments {
	in := instruments{map[string]*prometheus.CounterVec{}, map[string]*prometheus.HistogramVec{}}
	for _, f := range catalogue {
		switch {
		case f.From != from:
		case f.Type == Counter:
			in.counters[f.Name] = counter(reg, f.Name)
		case f.Type == Histogram:
			in.histograms[f.Name] = histogram(reg, f.Name)
		}
	}
	return in
}

// closed are the series of a counter by the value of its closed label. They
// are all made at once, and an event costs one lookup.
type closed map[string]prometheus.Counter

func (in instruments) closed(name string, labels ...string) closed {
	c := closed{}
	for _, value := range family(name).values() {
		c[value] = in.counters[name].WithLabelValues(append(labels, value)...)
	}
	return c
}

// add ignores a value that is not in the set: a test compares the sets with
// the types that they come from.
func (c closed) add(value string, n float64) {
	if series := c[value]; series != nil {
		series.Add(n)
	}
}

// readings are families that a collector reads anew at each scrape.
type readings map[string]reading

type reading struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
}

func newReadings(names ...string) readings {
	r := readings{}
	for _, name := range names {
		f := family(name)
		kind := prometheus.GaugeValue
		if f.Type == Counter {
			kind = prometheus.CounterValue
		}
		r[name] = reading{prometheus.NewDesc(f.FullName(), f.Help, f.labelNames(), nil), kind}
	}
	return r
}

func (r readings) describe(ch chan<- *prometheus.Desc) {
	for _, x := range r {
		ch <- x.desc
	}
}

func (r readings) send(ch chan<- prometheus.Metric, name string, v float64, labels ...string) {
	ch <- prometheus.MustNewConstMetric(r[name].desc, r[name].kind, v, labels...)
}

// namesFrom are the families that come from one side.
func namesFrom(from string) []string {
	var names []string
	for _, f := range catalogue {
		if f.From == from {
			names = append(names, f.Name)
		}
	}
	return names
}
