package consumer

import "log/slog"

// guarded keeps a panic of the user's Observer from ending the worker.
type guarded struct {
	o   Observer
	log *slog.Logger
}

func (g guarded) catch(method string) {
	if v := recover(); v != nil {
		g.log.Error("observer panicked", "method", method, "value", v, "stack", stack())
	}
}

func (g guarded) Delivered(queue string, source Source, n int) {
	defer g.catch("Delivered")
	g.o.Delivered(queue, source, n)
}

func (g guarded) Duplicates(queue string, n int) {
	defer g.catch("Duplicates")
	g.o.Duplicates(queue, n)
}

func (g guarded) Buried(queue string, n int) {
	defer g.catch("Buried")
	g.o.Buried(queue, n)
}

func (g guarded) Started(e Started) {
	defer g.catch("Started")
	g.o.Started(e)
}

func (g guarded) Ended(e Ended) {
	defer g.catch("Ended")
	g.o.Ended(e)
}

func (g guarded) Renewed(e Renewed) {
	defer g.catch("Renewed")
	g.o.Renewed(e)
}

func (g guarded) LeaseLost(e LeaseLost) {
	defer g.catch("LeaseLost")
	g.o.LeaseLost(e)
}

func (g guarded) Swept(e Swept) {
	defer g.catch("Swept")
	g.o.Swept(e)
}

func (g guarded) Refused(e Refused) {
	defer g.catch("Refused")
	g.o.Refused(e)
}

func (g guarded) Lost(e Lost) {
	defer g.catch("Lost")
	g.o.Lost(e)
}

func (g guarded) Promoted(queue string, n int) {
	defer g.catch("Promoted")
	g.o.Promoted(queue, n)
}

func (g guarded) ConsumersRemoved(queue string, n int) {
	defer g.catch("ConsumersRemoved")
	g.o.ConsumersRemoved(queue, n)
}

func (g guarded) Stuck(n int) {
	defer g.catch("Stuck")
	g.o.Stuck(n)
}

func (g guarded) Beat(loop string) {
	defer g.catch("Beat")
	g.o.Beat(loop)
}

func (g guarded) ServerError(e ServerError) {
	defer g.catch("ServerError")
	g.o.ServerError(e)
}
