// Package sim runs a fleet in virtual time: the real consumer, producer, queue
// and dedupe code, several workers and producers in one testing/synctest bubble
// with an in-process Redis, joined by connections in memory that fail as
// networks do. A seed chooses what goes wrong and when; hours of fleet time pass
// in seconds, and the same seed gives the same run.
//
// All of it is in tests:
//
//	world     the seed, the trace, what was found wrong
//	net       connections: latency, cuts, lost replies, black holes
//	proc      a process: its client, pauses, crashes, and the faults it met
//	server    the server: order, errors for a while, scripts by name
//	observer  a model of holder, fence and place of each task, compared with what
//	          the server holds after every command that changed it
//	tasks     what handlers do, and the other side of their effect
//	fleet     workers, producers, the nemesis, and what must hold at the end
//	events    what the queue tells of tasks, compared with the model at the end
//	planted   bugs put in on purpose, and how soon each is found
//	soak      for as long as asked, on all cores
//
// A failing seed is replayed with
//
//	go test ./internal/sim -run 'TestSeed$' -sim.seed=N -v
//
// What it cannot show: the server is not Redis, code takes no time between two
// calls, and writes that were acknowledged are not lost. Those are shown with
// real servers and processes elsewhere.
package sim
