// Package redistest gives tests a real redis-server.
//
// Most tests take the one server that a test binary shares, and keep to keys
// that begin with a prefix of their own:
//
//	func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }
//
//	func TestX(t *testing.T) {
//		rdb := redistest.Shared(t).Client()
//		prefix := redistest.Prefix(t)
//		…
//	}
//
// A test that kills, stops or fills the server starts its own with Start.
// Nobody flushes: on a shared server that deletes the neighbour's keys, and a
// test that needs an empty database would hide that the product needs one.
//
// A missing redis-server fails the test and names the remedy. It is never a
// skip: a suite that passes because it ran nothing proves nothing.
//
// Each server has one goroutine, which ends with the process.
package redistest
